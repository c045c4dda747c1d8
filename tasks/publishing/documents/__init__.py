"""Documents of a bundle: cards, checklists, metadata formats."""
