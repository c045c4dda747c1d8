"""Comparison of rows with the chain: of the whole ledger, or of what a decision rests on."""
