"""Life cycle of requests and proposals: budgets, gates, attempts and artifacts."""
