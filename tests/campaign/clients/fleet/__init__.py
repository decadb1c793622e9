"""Operators that change the fleet and the catalogue while tenants work."""
