"""Small tools that tasks share."""
