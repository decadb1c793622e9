"""Verbs on images, tenants and allocations: read, change and delete."""
