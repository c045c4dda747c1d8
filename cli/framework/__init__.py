"""What every command shares: context, prompts, tables, progress."""
