"""Commands about datasets and their budgets."""
