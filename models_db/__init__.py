"""Ledger: amounts, events, errors, tables and the services over them."""
