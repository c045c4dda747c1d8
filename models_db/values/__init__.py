"""Values of the ledger: states, gates, amounts, requests; they know no database."""
