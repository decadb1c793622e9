"""Resets of GPUs on a recorded machine."""
