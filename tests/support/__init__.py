"""Helpers that tests share; nothing here is a test."""
