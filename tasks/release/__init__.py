"""Values of a release: record, claim, rows, signatures."""
