"""Mechanisms over counts and histograms."""
