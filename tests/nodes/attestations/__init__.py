"""Attestations on demand."""
