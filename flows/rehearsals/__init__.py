"""Rehearsals of requests on public twins, and their results in the ledger."""
