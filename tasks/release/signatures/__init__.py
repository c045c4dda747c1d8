"""Signatures of bundles, approvals and checkpoints."""
