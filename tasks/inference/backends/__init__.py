"""Backends that write texts from public prompts: a model on this machine, or one behind an API.

See docs/external-models.md.
"""
