"""Each CHECK of hardware by serial number, with rows that it refuses and rows that it accepts."""

from __future__ import annotations

from tests.schema.checks import Check, one_of
from tests.support.rows import NOW

CHECKS = {
    "hardware_kind_is_known": one_of("hardware_places", "kind", "gpu", "disk"),
    "hardware_place_is_bounded": Check(
        "hardware_places",
        (
            *({"serial": serial} for serial in ("", "123", "-123", "12/34", "12 34", "1" * 65)),
            {"model": "m" * 65},
            {"slots": [0] * 65},
            {"positions": []},
            {"positions": ["p"] * 65},
        ),
        (
            {"serial": "A.b_c:d-9"}, {"serial": "1" * 64}, {"model": "m" * 64}, {"slots": []}, {"slots": [0] * 64},
            {"positions": ["p"] * 64},
        ),
    ),
    "missing_is_not_contested": Check(
        "hardware_places",
        ({"missing_since": NOW, "contested_since": NOW},),
        ({}, {"missing_since": NOW}, {"contested_since": NOW}),
    ),
    "hardware_event_is_known": one_of(
        "hardware_history", "happened", "seen", "moved", "missing", "contested", "fault_found", "fault_reported",
        "quarantined", "returned", "repair_opened", "repair_closed", "gpu_reset",
    ),
    "hardware_event_is_bounded": Check(
        "hardware_history",
        ({"detail": "d" * 1001}, {"evidence": "e" * 4001}),
        ({"detail": "d" * 1000}, {"evidence": "e" * 4000}, {"node_id": None}),
    ),
    "repair_end_is_whole": Check(
        "hardware_repairs",
        ({"closed_at": NOW}, {"closed_at": NOW, "closed_by": "b"}, {"result": "r"}),
        ({}, {"closed_at": NOW, "closed_by": "b", "result": "r"}),
    ),
}  # fmt: skip
