"""Object stores: what an address is, how one is reached, and what can go wrong there (docs/stores.md)."""
