"""Upgrades of agents in waves, with health as the gate."""
