"""Resets of BMCs."""
