"""Reservations (holds and confirmed windows) and the resources that they name."""
