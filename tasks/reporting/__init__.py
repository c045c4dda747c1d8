"""The page that a steward decides with and a reader gets: what it may tell, in plain words, and how it looks."""
