"""Randomness, samplers of OpenDP, and what is never charged."""
