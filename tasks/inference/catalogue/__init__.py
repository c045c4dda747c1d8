"""Models that are known: registry, files, checks with precisions and sizes, devices."""
