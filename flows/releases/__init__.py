"""The life of a release: request, price, run, commit, publish."""
