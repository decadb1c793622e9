"""CHECK constraints of drains."""

from __future__ import annotations

from tests.schema.checks import Check, finite, length
from tests.support.rows import LATER, NOW

_OVERDUE = {"overdue_at": NOW, "waits_until": None}
_DRAINED = {"drained_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}

CHECKS = {
    "drain_reason_is_bounded": length("node_drains", "reason", 1, 500),
    "drain_deadline_is_finite": finite("node_drains", "deadline", waits_until="infinity"),
    "drain_at_deadline": Check(
        "node_drains", ({"at_deadline": "kill"}, {"at_deadline": ""}), ({}, {"at_deadline": "release"})
    ),
    "drain_without_deadline_is_plain": Check(
        "node_drains",
        ({"deadline": None, **_OVERDUE}, {"deadline": None, "waits_until": None, "at_deadline": "release"}),
        ({"deadline": None, "waits_until": None}, _OVERDUE),
    ),
    "drain_waits_for_claims": Check(
        "node_drains",
        (
            {"waits_for": None},
            {"waits_for": "node"},
            {"waits_since": None},
            {"waits_until": None},
            {"waits_until": NOW},
            {**_OVERDUE, "waits_until": LATER},
            {"drained_at": NOW},
            {**_DRAINED, "waits_since": NOW},
        ),
        ({}, _OVERDUE, _DRAINED, {**_DRAINED, "overdue_at": NOW}),
    ),
}
