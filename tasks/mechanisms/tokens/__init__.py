"""Mechanisms that draw a token."""
