"""Delivers events to webhooks (docs/webhooks.md)."""
