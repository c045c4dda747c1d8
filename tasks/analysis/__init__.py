"""Analyses of texts: facets, keywords, clusters."""
