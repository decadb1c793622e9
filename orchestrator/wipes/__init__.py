"""Wipe certificates: what a node signed about the wipe of an allocation, countersigned and chained by the control plane."""
