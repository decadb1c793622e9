"""Mutants of the fleet: maintenance windows, guests, wipe certificates, health, discovery, quarantines, health probes."""
