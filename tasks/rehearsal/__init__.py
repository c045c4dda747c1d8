"""Rehearsal of a request on a public twin: who is read, who is held out, and how far the texts come."""
