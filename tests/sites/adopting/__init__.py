"""Adoption of machines that run already."""
