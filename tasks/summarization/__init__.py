"""Summaries of groups of units: one-shot soft prompts with their adapters, and decoding token by token."""
