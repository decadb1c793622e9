"""The columns that make a row of each state valid."""

from __future__ import annotations

from tests.support.rows import LATER, NOW, OTHER, Row

_IDLE: Row = {"waits_for": None, "waits_since": None, "waits_until": None}
_RELEASING: Row = {"active_at": NOW, "releasing_at": NOW}

ALLOCATION_STATES: dict[str, Row] = {
    "requested": {"state": "requested"},
    "provisioning": {"state": "provisioning"},
    "active": {"state": "active", "active_at": NOW, "waits_until": None},
    "releasing": {"state": "releasing", **_RELEASING},
    "released": {"state": "released", **_RELEASING, "released_at": NOW, **_IDLE},
    "release_failed": {"state": "release_failed", **_RELEASING, "release_failed_at": NOW, "waits_until": None},
    "failed": {"state": "failed", "failed_at": NOW, "failure_code": "code", **_IDLE},
}

_ENDED: Row = {"ended_at": NOW, "ended_event": OTHER, "retire_after": LATER, "expires_at": None, **_IDLE}

RESERVATION_STATES: dict[str, Row] = {
    "hold": {"state": "hold"},
    "confirmed": {"state": "confirmed", "confirmed_at": NOW, "expires_at": None, "waits_until": None},
    "cancelled": {"state": "cancelled", **_ENDED},
    "expired": {"state": "expired", **_ENDED, "expires_at": LATER},
    "consumed": {"state": "consumed", **_ENDED},
    "released": {"state": "released", **_ENDED},
}

_FINISHED: Row = {"finished_at": NOW}

TASK_STATES: dict[str, Row] = {
    "queued": {"state": "queued"},
    "dispatched": {"state": "dispatched"},
    "completed": {"state": "completed", "result": "{}", **_FINISHED},
    "failed": {"state": "failed", "failure_code": "code", **_FINISHED},
    "expired": {"state": "expired", **_FINISHED},
    "superseded": {"state": "superseded", **_FINISHED},
}

ORPHAN_STATES: dict[str, Row] = {
    "reported": {"state": "reported"},
    "adopted": {"state": "adopted"},
    "destroying": {"state": "destroying", "waits_until": LATER},
    "destroyed": {"state": "destroyed", "destroyed_at": NOW, "proof": "{}", **_IDLE},
}
