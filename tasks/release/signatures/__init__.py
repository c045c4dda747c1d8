"""Signatures of bundles, approvals and checkpoints; Ed25519 and OpenSSH keys."""
