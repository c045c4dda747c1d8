"""Workers of a run: threads, processes, and those of a cluster."""
