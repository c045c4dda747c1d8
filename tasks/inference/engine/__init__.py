"""The engine: rows, caches, passes, sessions."""
