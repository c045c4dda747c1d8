"""Clustering of embeddings, with and without differential privacy."""
