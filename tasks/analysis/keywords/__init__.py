"""Keyword sets: candidates, refinement, assignment to texts."""
