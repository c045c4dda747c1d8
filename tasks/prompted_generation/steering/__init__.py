"""Steering vectors: one noisy mean of hidden states, from which any number of texts are written."""
