"""Reads only: nothing here changes a row."""
