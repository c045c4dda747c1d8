"""Training of adapters on public data."""
