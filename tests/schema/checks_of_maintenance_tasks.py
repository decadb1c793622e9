"""CHECK constraints of the tasks of maintenance windows."""

from __future__ import annotations

from tests.schema.checks import Check, length, whole_or_absent
from tests.support.rows import LATER, NOW, OTHER, Row

_TABLE = "maintenance_tasks"
_BEGUN = {"task_id": OTHER, "begun_at": NOW}
_OVER = {"ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}
_RUNNING = {"state": "running", "waits_for": "node", **_BEGUN}
_COMPLETED = {"state": "completed", **_OVER, **_BEGUN}
_FAILED = {"state": "failed", "failure": "why", **_OVER, **_BEGUN}
_INTERRUPTED = {**_FAILED, "state": "interrupted"}
_NOT_RUN = {"state": "not_run", "failure": "why", **_OVER}
_STATES: tuple[Row, ...] = ({}, _RUNNING, _COMPLETED, _FAILED, _INTERRUPTED, _NOT_RUN, {**_NOT_RUN, **_BEGUN})
_PLUGIN = {"kind": "plugin", "plugin": "firmware"}
_FIRMWARE = {"kind": "firmware", "firmware": "{}"}

CHECKS = {
    "maintenance_task_kind": Check(
        _TABLE, ({"kind": "reboot"},), ({}, {"kind": "burn_in"}, {"kind": "gpu_reset"}, _PLUGIN, _FIRMWARE)
    ),
    "maintenance_task_firmware_is_bounded": Check(
        _TABLE, ({**_FIRMWARE, "firmware": '"' + "x" * 8_192 + '"'},), ({}, _FIRMWARE)
    ),
    "maintenance_task_names_firmware": Check(_TABLE, ({"kind": "firmware"}, {"firmware": "{}"}), ({}, _FIRMWARE)),
    "maintenance_task_plugin_name": Check(
        _TABLE,
        tuple({**_PLUGIN, "plugin": name} for name in ("", "../x", "A", "-x", "x" * 33)),
        ({**_PLUGIN, "plugin": "x" * 32}, {**_PLUGIN, "plugin": "0.a_b-c"}),
    ),
    "maintenance_task_is_bounded": Check(
        _TABLE, ({"seconds_max": 0}, {"seconds_max": 14_401}), ({"seconds_max": 1}, {"seconds_max": 14_400})
    ),
    "maintenance_task_state": Check(_TABLE, ({**_COMPLETED, "state": "unknown"},), _STATES),
    "maintenance_task_failure_is_bounded": Check(
        _TABLE, ({**_FAILED, "failure": "x" * 501},), ({**_FAILED, "failure": "x" * 500},)
    ),
    "maintenance_task_evidence_is_bounded": length(_TABLE, "evidence", 0, 1000),
    "maintenance_task_names_plugin": Check(_TABLE, ({"kind": "plugin"}, {"plugin": "firmware"}), ({}, _PLUGIN)),
    "maintenance_task_is_whole": Check(
        _TABLE, tuple({**_NOT_RUN, **part} for part in whole_or_absent(_BEGUN)), ({}, _RUNNING)
    ),
    "maintenance_task_has_begun": Check(
        _TABLE,
        (_BEGUN, *({**row, "task_id": None, "begun_at": None} for row in (_RUNNING, _COMPLETED, _FAILED, _INTERRUPTED))),
        _STATES,
    ),
    "maintenance_task_failed_why": Check(
        _TABLE,
        (
            {"failure": "w"}, {**_RUNNING, "failure": "w"}, {**_COMPLETED, "failure": "w"},
            *({**row, "failure": None} for row in (_FAILED, _INTERRUPTED, _NOT_RUN)),
        ),
        _STATES,
    ),
    "maintenance_task_waits": Check(
        _TABLE,
        (
            {"waits_for": None}, {"waits_for": "node"}, {"waits_since": None}, {"waits_until": None}, {"ended_at": NOW},
            {**_RUNNING, "waits_for": "units"}, {**_RUNNING, "waits_until": None}, {**_RUNNING, "ended_at": NOW},
            {**_COMPLETED, "ended_at": None}, {**_COMPLETED, "waits_for": "node"}, {**_COMPLETED, "waits_until": LATER},
        ),
        _STATES,
    ),
}  # fmt: skip
