"""Loading of models, and which of them this machine can compute."""
