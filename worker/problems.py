"""Why the worker cannot go on."""

from __future__ import annotations


class CannotRun(Exception):
    """The process must end; the message is one sentence that says why and what to do."""
