"""Audits of mechanisms: lower bounds of epsilon from repeated draws."""
