"""Rows that check constraints of tenants refuse and accept."""
