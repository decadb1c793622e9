"""Standbys that serve reads: which reads they may serve, and which standby may (docs/explanation/failover.md)."""
