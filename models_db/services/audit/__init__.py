"""The audit chain: reading it, verifying it, comparing it with the rows."""
