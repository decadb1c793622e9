"""Fixtures of the tests of reservations."""

from tests.api.reservations.narrow import narrow

__all__ = ["narrow"]
