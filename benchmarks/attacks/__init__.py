"""Attacks: hostile clients, and the figures of what others notice of them."""
