"""Counts refusals of callers without a valid credential, by source and minute, in a bounded table.

A stranger can cause any number of them, so they are never stored one by one (P13). No part of a credential is counted or kept.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Final

from berth.process.json_objects import JsonObject
from orchestrator.http.audited.minutes import CountsByMinute

SOURCES_MAX: Final = 1_000
"""Addresses that are counted separately in a minute; the refusals of all others are added up."""
ROWS_MAX: Final = 100
"""Rows of a minute with an address, those with the most refusals; one more row has the sum of the rest."""


class StrangerCounts(CountsByMinute):
    """Refusals of the minutes that are not written yet."""

    def __init__(self) -> None:
        super().__init__()
        self._sources: Counter[str] = Counter()
        self._others = 0

    def note(self, source: str | None, now: datetime) -> None:
        """Count a refusal of a caller at this address, at this time (aware)."""
        self._advance(now)
        if source is None or (source not in self._sources and len(self._sources) >= SOURCES_MAX):
            self._others += 1
        else:
            self._sources[source] += 1

    def _rows_of(self, minute: datetime) -> list[JsonObject]:
        most = self._sources.most_common(ROWS_MAX)
        rest = self._others + self._sources.total() - sum(count for _, count in most)
        counted: list[tuple[str | None, int]] = [*most, (None, rest)] if rest else [*most]
        rows = [_row(source, count, minute) for source, count in counted]
        self._others = 0
        self._sources.clear()
        return rows


def _row(source: str | None, count: int, minute: datetime) -> JsonObject:
    return {
        "at": minute.isoformat(), "kind": "stranger", "id": source or "others", "source": source, "status": 401,
        "action": "caller.refuse", "subject": f"sources/{source or 'others'}", "code": "unauthenticated",
        "detail": {"refusals": count},
    }  # fmt: skip
