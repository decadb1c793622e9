"""Named places where the process may be killed by a test: wherever two systems meet (docs/crash-points.md).

In a product process nothing is installed and reaching a point costs one look at a global. The product never reads a
setting for it; `tests/testbuild` starts a process with something installed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Labels, in the order in which an event passes them."""

    STREAM_AFTER_MADE = "stream.after_made"
    SEQUENCING_AFTER_COMMIT = "sequencing.after_commit"
    PUBLISHING_BEFORE_SEND = "publishing.before_send"
    PUBLISHING_AFTER_SEND = "publishing.after_send"
    PUBLISHING_AFTER_STORED = "publishing.after_stored"


_installed: Callable[[CrashPoint], None] | None = None


def install(on_reached: Callable[[CrashPoint], None] | None) -> None:
    """From now on call `on_reached` at every point; None takes it away again."""
    global _installed
    _installed = on_reached


def reach(point: CrashPoint) -> None:
    """This place is reached. Nothing happens unless something was installed."""
    if _installed is not None:
        _installed(point)
