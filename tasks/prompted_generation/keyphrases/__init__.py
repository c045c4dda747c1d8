"""Keyphrase seeding (DP-KPS): texts from phrases that were released."""
