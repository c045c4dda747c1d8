"""One mechanism a file, its loss beside its draw; rng.py is the only door to randomness."""
