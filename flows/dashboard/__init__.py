"""The pages of the dashboard as values."""
