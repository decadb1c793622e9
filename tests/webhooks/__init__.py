"""Webhooks: selection, signatures, retries, delivery records and bounds (docs/reference/webhooks.md)."""
