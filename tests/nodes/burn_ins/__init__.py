"""Burn-ins: requested, issued, concluded, and the returns that they permit."""
