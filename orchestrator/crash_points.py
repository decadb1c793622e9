"""Named places where the process may be killed by a test: wherever two systems meet (docs/crash-points.md).

In a product process nothing is installed and reaching a point costs one look at a global. The product never reads a
setting for it; `tests/testbuild` starts a process with something installed. The worker reaches these points too.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal

Moment = Literal["before_commit", "after_commit"]


class CrashPoint(StrEnum):
    """Labels. Those of a commit are the command's name and the moment; commands without a pair share `other_command`."""

    OTHER_COMMAND_BEFORE_COMMIT = "other_command.before_commit"
    OTHER_COMMAND_AFTER_COMMIT = "other_command.after_commit"


_labels = frozenset(point.value for point in CrashPoint)
_installed: Callable[[CrashPoint], None] | None = None


def install(on_reached: Callable[[CrashPoint], None] | None) -> None:
    """From now on call `on_reached` at every point; None takes it away again."""
    global _installed
    _installed = on_reached


def reach(point: CrashPoint) -> None:
    """This place is reached. Nothing happens unless something was installed."""
    if _installed is not None:
        _installed(point)


def reach_commit(work: Callable[..., object], moment: Moment) -> None:
    """The transaction of the command whose module defines `work` is about to commit, or has committed."""
    if _installed is not None:
        label = f"{work.__module__.rpartition('.')[2]}.{moment}"
        _installed(CrashPoint(label if label in _labels else f"other_command.{moment}"))
