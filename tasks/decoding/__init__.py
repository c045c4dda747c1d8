"""Decoding of private texts: the loop, its journal and its budget."""
