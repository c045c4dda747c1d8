"""Facets, keywords and clusters: what texts are about, unit by unit and released."""
