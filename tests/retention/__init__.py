"""Retention of the log."""
