"""Allocations: what a tenant's workload runs on, from `requested` to `released`."""
