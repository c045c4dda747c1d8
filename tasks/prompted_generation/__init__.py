"""Systems that generate text from prompts with released private statistics."""
