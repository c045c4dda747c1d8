"""Signatures on a release: keys and passkeys, decisions, attestation, and what a publisher states."""
