"""Datasets: registration, budgets, forecasts, erasure."""
