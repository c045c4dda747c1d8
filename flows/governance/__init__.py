"""Principals, policies and lifetime claims."""
