"""Training of adapters on public data, through a frozen language model."""
