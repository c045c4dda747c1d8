"""Catalogue of registered principals, datasets, requests and schedules."""
