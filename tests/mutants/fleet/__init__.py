"""Mutants of the fleet: windows, guests, hosts, wipe certificates, health, discovery, quarantines, probes, faults, hardware."""
