"""Prompts: specification, presets, rendering."""
