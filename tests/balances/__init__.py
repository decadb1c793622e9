"""Prepaid balances: what is told and released, rivals, and the sum to the unit (docs/reference/billing.md)."""
