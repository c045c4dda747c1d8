"""A release: its record, its claim, its rows and its signatures."""
