"""Prices of releases: quotes, the registry of systems, charged metrics."""
