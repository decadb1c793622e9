"""Checks of what nodes share among tenants."""
