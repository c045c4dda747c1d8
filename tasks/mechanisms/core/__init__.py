"""Randomness, samplers of OpenDP, and uncharged invocations."""
