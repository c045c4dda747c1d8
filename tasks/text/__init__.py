"""Text: words, entities, and what puts texts into a space."""
