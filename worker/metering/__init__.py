"""Metering: a consumer of the log that writes the usage ledger (docs/reference/billing.md)."""
