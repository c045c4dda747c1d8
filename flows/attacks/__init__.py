"""Attacks on a release by its public twin, and their stored results."""
