"""Adapters: stored weights and their metadata."""
