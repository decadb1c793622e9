"""Mutants: windows, guests, hosts, networks, wipes, health, discovery, quarantines, burn-ins, resets, probes, faults, serials."""
