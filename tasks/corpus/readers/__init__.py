"""Readers of documents from files and object stores."""
