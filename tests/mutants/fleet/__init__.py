"""Mutants: windows, guests, hosts, wipes, health, discovery, quarantines, burn-ins, resets, probes, faults, hardware, networks."""
