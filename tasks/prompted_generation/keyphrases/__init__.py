"""DP-KPS: texts written from private key phrases."""
