"""Private summaries of groups of units: one-shot soft prompts with their adapters, and token-level decoding."""
