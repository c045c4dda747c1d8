"""Systems that draw each token from private rows, and their baselines."""
