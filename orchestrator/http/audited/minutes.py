"""Counts of one minute after another, which become audit rows when their minute is over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Final

from berth.process.json_objects import JsonObject

MINUTE: Final = timedelta(minutes=1)


class CountsByMinute(ABC):
    """The counts of the present minute, and the rows of the minutes that are over and not taken yet."""

    def __init__(self) -> None:
        self._minute: datetime | None = None
        self._complete: list[JsonObject] = []

    def take(self, now: datetime, *, everything: bool = False) -> list[JsonObject]:
        """The rows of minutes that are over at this time (aware), or of all, at most once each."""
        if self._minute is not None and (everything or now >= self._minute + MINUTE):
            self._end()
        rows, self._complete = self._complete, []
        return rows

    def _advance(self, now: datetime) -> None:
        """Make the minute of this time the present one; call before counting."""
        minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        if minute != self._minute:
            self._end()
            self._minute = minute

    def _end(self) -> None:
        if self._minute is not None:
            self._complete += self._rows_of(self._minute)
            self._minute = None

    @abstractmethod
    def _rows_of(self, minute: datetime) -> list[JsonObject]:
        """The rows of the counts, which begin at 0 again."""
