"""Metering: what was active, turned into the ledger's lines by a consumer of the log (docs/billing.md)."""
