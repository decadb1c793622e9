"""Resets of GPUs by the agent."""
