"""Limits of a process, and what they are counted by."""
