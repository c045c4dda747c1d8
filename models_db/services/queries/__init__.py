"""Lists, histories and health, read across the ledger."""
