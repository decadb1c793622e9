"""Maintenance windows: claims without a tenant, planned units, start and end."""
