"""The simple Clio baseline."""
