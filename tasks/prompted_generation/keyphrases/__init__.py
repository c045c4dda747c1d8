"""DP-KPS: texts generated from private key phrases."""
