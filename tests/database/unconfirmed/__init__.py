"""Commits that no standby has confirmed: what their callers get, and that nothing is acknowledged that a failover may lose."""
