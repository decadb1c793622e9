"""Directed scenes of webhooks, balances, quotas and rates."""
