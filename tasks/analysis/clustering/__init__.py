"""Clustering with and without differential privacy."""
