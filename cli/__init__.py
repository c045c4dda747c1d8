"""Command line: one file per command group, --json everywhere, and the only place that catches errors."""
