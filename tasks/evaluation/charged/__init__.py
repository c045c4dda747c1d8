"""Metrics that read private data under differential privacy and pay for it."""
