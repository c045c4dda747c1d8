"""Keyword sets: candidates, private selection, refinement, assignment to texts."""
