"""Health probes of nodes: what was reported, what is a fault, and what follows from it."""
