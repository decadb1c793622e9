"""Constraints of sites and BMCs."""
