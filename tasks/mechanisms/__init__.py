"""Mechanisms, one per file, each with its loss beside its draw; rng.py is the only source of randomness."""
