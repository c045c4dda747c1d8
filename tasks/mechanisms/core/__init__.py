"""Randomness, noise of OpenDP, and uncharged invocations."""
