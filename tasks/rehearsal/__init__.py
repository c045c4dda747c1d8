"""Rehearsal of a request on a public twin: the split of the people, the results and their shares."""
