"""The commands, one folder a subject."""
