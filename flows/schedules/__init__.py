"""Scheduled releases, with Prefect or without."""
