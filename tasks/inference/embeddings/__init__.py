"""Texts as points: encoders, and their work shared out over workers."""
