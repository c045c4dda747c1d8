"""Object stores: addresses, settings, access."""
