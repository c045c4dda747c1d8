"""Example of a package that extends almoner; tests install it, and docs/extensions.md explains it."""
