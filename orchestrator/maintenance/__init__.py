"""Maintenance windows: times in which operators work on nodes or slots, as claims without a tenant."""
