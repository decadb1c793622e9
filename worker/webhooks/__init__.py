"""Delivers events to the webhooks of tenants and operators (docs/reference/webhooks.md)."""
