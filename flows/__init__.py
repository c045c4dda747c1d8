"""Prefect flows whose bodies read as a paragraph; every one also runs as a plain function."""
