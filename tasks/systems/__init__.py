"""Systems: each module or folder makes one kind of release, beside its paper; the registry knows their names."""
