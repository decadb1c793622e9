"""Crash points of the agent of a site; docs/reference/metal/sites.md describes each."""

from __future__ import annotations

from enum import StrEnum

from berth.process.crash_points import reach as pass_point

__all__ = ["CrashPoint", "pass_point"]


class CrashPoint(StrEnum):
    """Labels, in the order in which a task passes them."""

    TASK_AFTER_ACCEPTED = "bmc_task.after_accepted"
    ROTATION_BEFORE_STORED = "rotation.before_stored"
    ROTATION_AFTER_STORED = "rotation.after_stored"
    ROTATION_AFTER_CHANGED = "rotation.after_changed"
    POWER_BEFORE_FORCED = "power.before_forced"
    POWER_AFTER_OFF = "power.after_off"
    POWER_AFTER_REACHED = "power.after_reached"
    START_AFTER_PUBLISHED = "start.after_published"
    START_AFTER_INSERTED = "start.after_inserted"
    START_AFTER_BOOT_ONCE = "start.after_boot_once"
    START_AFTER_ON = "start.after_on"
    EJECT_AFTER_EJECTED = "eject.after_ejected"
    EJECT_AFTER_DISK = "eject.after_disk"
    END_AFTER_OFF = "end.after_off"
    END_AFTER_EJECTED = "end.after_ejected"
    END_AFTER_DISK = "end.after_disk"
    RESET_AFTER_BACK = "bmc_reset.after_back"
    PORTS_BEFORE_MOVED = "ports.before_moved"
    PORTS_AFTER_ONE = "ports.after_one"
    FIRMWARE_AFTER_FETCHED = "firmware.after_fetched"
    FIRMWARE_BEFORE_SENT = "firmware.before_sent"
    FIRMWARE_AFTER_SENT = "firmware.after_sent"
    FIRMWARE_AFTER_TASK = "firmware.after_task"
    FIRMWARE_AFTER_ENDED = "firmware.after_ended"
    FIRMWARE_AFTER_RESTARTED = "firmware.after_restarted"
    REPORT_BEFORE_SENT = "bmc_report.before_sent"
    REPORT_AFTER_ANSWER = "bmc_report.after_answer"
