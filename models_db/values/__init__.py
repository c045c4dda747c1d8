"""Values of the ledger: frozen, and without a database."""
