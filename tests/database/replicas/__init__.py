"""Reads that a standby serves: which, from which standby, and how stale."""
