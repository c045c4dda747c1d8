"""Mechanisms over vectors: means, clusters, sketches."""
