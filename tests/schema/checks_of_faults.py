"""Each CHECK of fault reports, with rows that it refuses and rows that it accepts."""

from __future__ import annotations

from tests.schema.checks import Check
from tests.support.rows import LATER, NOW, OTHER

_REPLACING = {
    "replace": True, "replacement_id": OTHER, "waits_for": "replacement", "waits_since": NOW, "waits_until": LATER,
}  # fmt: skip
_REPLACED = {"replace": True, "replacement_id": OTHER, "replacement_outcome": "failed"}

CHECKS = {
    "symptom_is_known": Check(
        "fault_reports",
        ({"symptom": "x"},),
        tuple({"symptom": one} for one in ("unreachable", "gpu_error", "slow", "network", "storage", "other")),
    ),
    "replacement_outcome_is_known": Check(
        "fault_reports",
        ({**_REPLACED, "replacement_outcome": "x"},),
        tuple({**_REPLACED, "replacement_outcome": one} for one in ("replaced", "failed", "released", "overdue")),
    ),
    "replacement_wait_is_whole": Check(
        "fault_reports",
        ({**_REPLACING, "waits_since": None}, {**_REPLACING, "waits_until": None}, {"waits_since": NOW}),
        ({}, _REPLACING),
    ),
    "replacement_is_whole": Check(
        "fault_reports",
        (
            {"replace": True},
            {"replacement_id": OTHER},
            {**_REPLACING, "replace": False},
            {**_REPLACED, "replacement_id": None},
            {**_REPLACED, "replacement_outcome": None},
            {**_REPLACING, "replacement_outcome": "failed"},
        ),
        ({}, _REPLACING, _REPLACED),
    ),
}
