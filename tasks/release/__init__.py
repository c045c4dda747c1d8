"""A release as a value: record, claim, rows, signatures."""
