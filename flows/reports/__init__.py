"""Reports of a release for its audiences."""
