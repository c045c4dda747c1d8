"""Texts by a language model that is shown public words alone: what is private has been released before."""
