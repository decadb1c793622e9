"""CHECK constraints of burn-ins."""

from __future__ import annotations

from tests.schema.checks import Check, length, whole_or_absent
from tests.support.rows import LATER, NOW, OTHER

_OF_WAIT = {"waits_for": "node", "waits_since": NOW, "waits_until": LATER}
_BURNED_IN = {"ended_at": NOW, "outcome": "failed", "waits_for": None, "waits_since": None, "waits_until": None}
_TESTED = {"task_id": OTHER, "issued_at": NOW, "shared": False}

CHECKS = {
    "burn_in_outcome": Check(
        "node_burn_ins",
        ({**_BURNED_IN, "outcome": "unknown"},),
        (
            {},
            _BURNED_IN,
            {**_BURNED_IN, "outcome": "faulty"},
            {**_BURNED_IN, **_TESTED, "outcome": "passed", "report": "{}"},
        ),
    ),
    "burn_in_failure_is_bounded": length("node_burn_ins", "failure", 0, 500),
    "burn_in_task_is_whole": Check("node_burn_ins", whole_or_absent(_TESTED), ({}, _TESTED)),
    "burn_in_end_is_whole": Check(
        "node_burn_ins", ({"ended_at": NOW}, {**_BURNED_IN, "ended_at": None}), ({}, _BURNED_IN)
    ),
    "burn_in_waits": Check(
        "node_burn_ins",
        (
            {"waits_for": None},
            {"waits_until": None},
            {**_BURNED_IN, "waits_for": "node"},
            {**_BURNED_IN, **_OF_WAIT},
            {"waits_for": None, "waits_since": None, "waits_until": None},
        ),
        ({}, _BURNED_IN),
    ),
    "burn_in_pass_is_proven": Check(
        "node_burn_ins",
        tuple({**_BURNED_IN, "outcome": "passed", **more} for more in ({}, _TESTED, {"report": "{}"})),
        ({}, _BURNED_IN, {**_BURNED_IN, **_TESTED, "outcome": "passed", "report": "{}"}),
    ),
}
