"""Helpers that several test packages share. No test module is imported by another."""
