"""Mutants of tenant networks."""
