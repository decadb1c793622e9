"""The error that ends the worker's process."""

from __future__ import annotations


class CannotRun(Exception):
    """The process must end; the message states the reason in one sentence."""
