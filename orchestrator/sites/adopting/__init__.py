"""Adoption of machines that run already: what is stated of them, and what is required."""
