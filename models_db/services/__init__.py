"""What may be done to the tables, each in one transaction."""
