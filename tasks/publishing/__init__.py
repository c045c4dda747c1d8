"""Publication of a release: card, bundle, signatures, delivery, and the offline check of all of them."""
