"""Release report, as a page and as JSON: the facts that an audience may see, in plain words and charts."""
