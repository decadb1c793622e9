"""Mutants of the fleet: windows, guests, hosts, wipes, health, discovery, quarantines, burn-ins, probes, faults, hardware."""
