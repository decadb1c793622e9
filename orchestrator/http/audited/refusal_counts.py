"""Bounds the audit rows of refused requests: a caller has so many rows a minute, and what is beyond is one row with a number.

A caller with a valid credential can send thousands of requests a second that are refused before anything is stored. A row for
each would fill the audit, which is kept for longer than anything else, and the queue, in which the rows of others wait (P13).
Refusals that are stored with their operations are not counted here: the quota of operations bounds them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from berth.process.json_objects import JsonObject
from orchestrator.http.audited.minutes import CountsByMinute

ROWS_MAX: Final = 120
"""Rows of refusals that one caller has in a minute."""
CALLERS_MAX: Final = 10_000
"""Callers that are counted in a minute; the refusals of all others share one place, and one row."""
OTHERS: Final = "others"
_OF_CALLER: Final = ("kind", "id", "role", "tenant", "user", "source")


class RefusalCounts(CountsByMinute):
    """Refusals of the present minute by caller, and rows of the minutes that are over and not taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}
        self._callers: dict[str, JsonObject] = {}

    def admit(self, row: JsonObject, now: datetime) -> bool:
        """Whether the refusal of this row (see `record_requests`) is to be stored by itself; otherwise it is counted."""
        self._advance(now)
        caller = str(row["id"])
        if caller not in self._counts and len(self._counts) >= CALLERS_MAX:
            caller = OTHERS
        count = self._counts.get(caller, 0) + 1
        self._counts[caller] = count
        if count <= ROWS_MAX:
            return True
        if caller not in self._callers:
            self._callers[caller] = _caller_of(row) if caller != OTHERS else {"kind": "stranger", "id": OTHERS}
        return False

    def _rows_of(self, minute: datetime) -> list[JsonObject]:
        rows = [
            known
            | {
                "at": minute.isoformat(), "action": "request.refuse", "subject": f"principals/{caller}",
                "status": 403, "code": "many_refusals", "detail": {"refusals": self._counts[caller] - ROWS_MAX},
            }
            for caller, known in self._callers.items()
        ]  # fmt: skip
        self._counts.clear()
        self._callers.clear()
        return rows


def _caller_of(row: JsonObject) -> JsonObject:
    return {name: row[name] for name in _OF_CALLER if name in row}
