"""Attestations of machines without an agent."""
