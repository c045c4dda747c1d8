"""Words, tags and cleaning of text."""
