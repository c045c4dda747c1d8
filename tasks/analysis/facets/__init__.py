"""Facets of a text, extracted by rules or by a model: its topics, keywords, summary and other fields."""
