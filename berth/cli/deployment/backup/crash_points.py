"""Crash points of `berth backup`; docs/reference/crash-points.md describes each."""

from __future__ import annotations

from enum import StrEnum


class CrashPoint(StrEnum):
    """Labels, in the order in which a backup, its verification and an escrow pass them."""

    AFTER_COPY = "backup.after_copy"
    BEFORE_RENAME = "backup.before_rename"
    AFTER_RENAME = "backup.after_rename"
    AFTER_DISCARD = "backup.after_discard"
    AFTER_RESTORE = "backup.after_restore"
    BEFORE_RESULT = "backup.before_result"
    BEFORE_RESTORED = "backup.before_restored"
    BEFORE_ESCROW = "backup.before_escrow"
