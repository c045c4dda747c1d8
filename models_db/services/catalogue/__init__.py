"""Principals, datasets, requests and schedules: what is registered."""
