"""Mutants of the fleet: windows, guests, hosts, wipe certificates, health, discovery, quarantines, probes, faults, hardware."""
"""Mutants of the fleet: windows, guests, hosts, wipe certificates, health, discovery, quarantines, burn-ins, probes, faults."""
