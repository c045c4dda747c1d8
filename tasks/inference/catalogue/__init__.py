"""Models that are known: registry, files, precisions, devices."""
