"""Framework of all commands: context, prompts, tables, progress."""
