"""Analyses of texts: facets, keywords and clusters."""
