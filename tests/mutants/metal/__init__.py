"""Mutants of bare metal: what reaches a machine through its BMC."""
