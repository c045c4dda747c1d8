"""Sentences about a release that several documents share."""
