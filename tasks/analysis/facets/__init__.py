"""Facets: what is extracted from each unit's text, a function of that text alone."""
