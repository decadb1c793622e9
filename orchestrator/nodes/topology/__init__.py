"""Topologies of nodes: what was found, what is approved, and what differs."""
