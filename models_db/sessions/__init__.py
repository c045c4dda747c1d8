"""Sessions of the ledger: its engine, transactions, and read-only access."""
