"""SIMPLE-CLIO: insights without protection, for public data."""
