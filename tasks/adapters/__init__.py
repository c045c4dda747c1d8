"""Adapters of one-shot summaries: stored weights and their metadata."""
