"""Drains of nodes: their deadline, what is still in the way, and what happens at the deadline."""
