"""CHECK constraints of console sessions."""

from __future__ import annotations

from tests.schema.checks import Check, length
from tests.support.rows import LATER, NOW, OTHER

_TABLE = "console_sessions"
_DISPATCHED = {"dispatched_at": NOW, "lease_fence": 1, "site_id": OTHER, "task_id": OTHER}
_ENDED = {"ended_at": NOW, "reason": "idle", "waits_for": None, "waits_since": None, "waits_until": None}


def _counted(column: str) -> Check:
    return Check(_TABLE, ({column: -1},), ({column: 0}, {column: 2**62}))


CHECKS = {
    "console_mode": Check(_TABLE, ({"mode": "write"},), ({"mode": "attach"}, {"mode": "log"})),
    "console_address_is_bounded": length(_TABLE, "address", 1, 300),
    "console_secret_is_hashed": Check(
        _TABLE, ({"secret_sha256": "a" * 63}, {"secret_sha256": "A" * 64}), ({"secret_sha256": "0" * 64},)
    ),
    "console_waits_for": Check(
        _TABLE, ({"waits_for": "tenant"},), tuple({"waits_for": one} for one in ("worker", "node", "end"))
    ),
    "console_reason_is_bounded": Check(
        _TABLE, ({**_ENDED, "reason": ""}, {**_ENDED, "reason": "x" * 65}), ({**_ENDED, "reason": "x" * 64},)
    ),
    "console_input_is_counted": _counted("bytes_to_guest"),
    "console_output_is_counted": _counted("bytes_to_tenant"),
    "console_losses_are_counted": _counted("bytes_dropped"),
    "console_end_is_whole": Check(_TABLE, ({"ended_at": NOW}, {**_ENDED, "ended_at": None}), ({}, _ENDED)),
    "console_waits": Check(
        _TABLE,
        (
            {"waits_for": None},
            {"waits_until": None},
            {**_ENDED, "waits_for": "end", "waits_since": NOW, "waits_until": LATER},
        ),
        ({}, _ENDED),
    ),
    "console_attached_by_task": Check(
        _TABLE, ({"attached_at": NOW},), ({}, {"attached_at": NOW, "task_id": OTHER}, {"task_id": OTHER})
    ),
    "console_dispatched_is_whole": Check(
        _TABLE, ({**_DISPATCHED, "lease_fence": None}, {**_DISPATCHED, "dispatched_at": None}), ({}, _DISPATCHED)
    ),
    "console_task_of_site": Check(
        _TABLE,
        ({"envelope": "{}"}, {**_DISPATCHED, "site_id": None}),
        ({"site_id": OTHER}, {"envelope": "{}", "site_id": OTHER}, _DISPATCHED),
    ),
    "console_dispatched_was_signed": Check(_TABLE, ({**_DISPATCHED, "task_id": None},), ({}, _DISPATCHED)),
}
