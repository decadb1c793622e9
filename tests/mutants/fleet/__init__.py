"""Mutants of the fleet: maintenance windows."""
