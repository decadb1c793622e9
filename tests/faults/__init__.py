"""Faults that tenants report: quarantine at release, replacement, history of the hardware, repairs."""
