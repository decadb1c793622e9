"""Resets of GPUs: which GPUs are reset together, when they may be, and what proves a reset."""
