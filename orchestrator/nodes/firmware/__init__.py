"""Accepted versions of the firmware of machines, by model, and their comparison at a release."""
