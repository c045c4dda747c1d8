"""SIMPLE-CLIO: the unprotected reference for insights, for public data alone."""
