"""Burn-in of a node before it serves again: memory, disk, processors, DCGM and plugins, in separate bounded processes."""
