"""Engines, connections and statements of both databases."""
