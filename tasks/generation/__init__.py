"""Text-generating systems, one a file, behind one interface."""
