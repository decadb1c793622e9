"""Executables that an operator installs on a node, and that maintenance windows run: firmware updates, reboots."""
