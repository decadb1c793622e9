"""Resets of GPUs by the control plane."""
