"""Writing rows, and the links of the chain that commit to them."""
