"""Insights into a corpus: topics with descriptions, noisy sizes and a hierarchy, end to end private (PRIVACY §5)."""
