"""Burn-ins of an agent: what is tested, what is found, and what is left."""
