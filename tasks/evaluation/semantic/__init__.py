"""Metrics of embeddings and of classifiers."""
