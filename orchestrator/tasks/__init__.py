"""Signed tasks for nodes: issue, lease, report, expire."""
