"""Crash points of `berth archive run`; docs/reference/crash-points.md describes each."""

from __future__ import annotations

from enum import StrEnum


class CrashPoint(StrEnum):
    """Labels, in the order in which a segment passes them."""

    BEFORE_SEGMENT = "archive.before_segment"
    AFTER_SEGMENT = "archive.after_segment"
    AFTER_MANIFEST = "archive.after_manifest"
    BEFORE_DELETE_COMMIT = "archive.before_delete_commit"
    AFTER_DELETE_COMMIT = "archive.after_delete_commit"
