"""Crash points of the relay; docs/reference/crash-points.md describes each."""

from __future__ import annotations

from enum import StrEnum

from berth.process.crash_points import reach

__all__ = ["CrashPoint", "reach"]


class CrashPoint(StrEnum):
    """Labels, in the order in which an event passes them."""

    STREAM_AFTER_MADE = "stream.after_made"
    SEQUENCING_AFTER_COMMIT = "sequencing.after_commit"
    PUBLISHING_BEFORE_SEND = "publishing.before_send"
    PUBLISHING_AFTER_SEND = "publishing.after_send"
    PUBLISHING_AFTER_STORED = "publishing.after_stored"
