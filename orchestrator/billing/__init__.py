"""Billing: metering, usage, the ledger and prepaid balances."""
