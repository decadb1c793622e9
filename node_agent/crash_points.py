"""Named places where the process may be killed by a test: wherever two systems meet (docs/crash-points.md).

In a product process nothing is installed and reaching a point costs one look at a global. The product never reads a
setting for it; `tests/testbuild` starts a process with something installed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Labels, in the order in which a node and then a task passes them."""

    ENROLMENT_BEFORE_REQUEST = "enrolment.before_request"
    ENROLMENT_AFTER_ANSWER = "enrolment.after_answer"
    ENROLMENT_AFTER_STORED = "enrolment.after_stored"
    RENEWAL_AFTER_ANSWER = "renewal.after_answer"
    TASK_BEFORE_ACCEPTED = "task.before_accepted"
    TASK_AFTER_ACCEPTED = "task.after_accepted"
    EFFECT_BEFORE_JOURNALED = "effect.before_journaled"
    EFFECT_BEFORE_BEGINNING = "effect.before_beginning"
    EFFECT_AT_PHASE = "effect.at_phase"
    EFFECT_AFTER_END = "effect.after_end"
    REPORT_BEFORE_SEND = "report.before_send"
    REPORT_AFTER_ANSWER = "report.after_answer"
    REPORT_AFTER_JOURNALED = "report.after_journaled"


_installed: Callable[[CrashPoint], None] | None = None


def install(on_reached: Callable[[CrashPoint], None] | None) -> None:
    """From now on call `on_reached` at every point; None takes it away again."""
    global _installed
    _installed = on_reached


def reach(point: CrashPoint) -> None:
    """This place is reached. Nothing happens unless something was installed."""
    if _installed is not None:
        _installed(point)
