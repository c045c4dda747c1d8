"""What leaves the house: card, bundle, signature, and the offline check of all three."""
