"""Commands about a release, from its request to its publication."""
