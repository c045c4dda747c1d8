"""Documents of a bundle: cards, checklist, metadata formats, Parquet."""
