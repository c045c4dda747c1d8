"""What commands share: how they begin, what they answer, and how it is shown."""
