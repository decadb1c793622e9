"""`berth alloc console`."""
