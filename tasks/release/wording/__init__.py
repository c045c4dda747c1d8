"""Fixed sentences about a release that several documents share."""
