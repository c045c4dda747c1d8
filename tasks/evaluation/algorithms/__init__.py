"""Algorithms that several metrics use."""
