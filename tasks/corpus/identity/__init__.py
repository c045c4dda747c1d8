"""Keys, fingerprints and names of units."""
