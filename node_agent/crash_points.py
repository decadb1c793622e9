"""Crash points of the agent; docs/reference/crash-points.md describes each."""

from __future__ import annotations

from enum import StrEnum

from berth.process.crash_points import reach

__all__ = ["CrashPoint", "reach"]


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
