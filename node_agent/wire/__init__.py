"""The base of every message between a node and the control plane."""
