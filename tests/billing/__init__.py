"""Prepaid balances: events, releases by billing, concurrent commands, and exact sums (docs/reference/billing.md)."""
