"""Webhooks: events sent to tenants' URLs, signed and retried."""
