"""Values that the work hands on: frozen, and below everything that computes with them."""
