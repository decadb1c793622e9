"""Mutants of what keeps tenants apart and the log in one order."""
