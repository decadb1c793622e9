"""Webhooks: what is sent where, how it is signed, tried again, told, and kept within bounds (docs/reference/webhooks.md)."""
