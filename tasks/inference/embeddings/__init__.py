"""Embeddings of texts and of units."""
