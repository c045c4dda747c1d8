"""Layers of a language model, computed row by row."""
