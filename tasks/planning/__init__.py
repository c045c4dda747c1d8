"""Public numbers of a plan: batches, blocks, groups."""
