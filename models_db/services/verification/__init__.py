"""Comparison of rows with the chain: of the whole ledger, or of the evidence of a decision."""
