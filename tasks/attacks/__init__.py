"""Attacks on our own promises: canaries, overlap, lower bounds on epsilon."""
