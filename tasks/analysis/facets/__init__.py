"""Facets of a text: what it is about, extracted by rules or by a model."""
