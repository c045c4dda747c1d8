"""Systems that prompt a model with private statistics."""
