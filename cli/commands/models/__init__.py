"""Commands about models, endpoints, adapters and keyword sets."""
