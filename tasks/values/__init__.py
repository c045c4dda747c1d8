"""Values of tasks: frozen, and below everything that computes with them."""
