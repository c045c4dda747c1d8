"""URANIA: private insights from conversations."""
