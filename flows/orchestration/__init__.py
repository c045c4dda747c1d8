"""Releases as flow runs of a Prefect server: the flow, its worker, and its deployment."""
