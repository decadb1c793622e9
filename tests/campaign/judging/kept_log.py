"""The stream of a history as the truth about the log, and what the log may have dropped of it by its age. Pure."""

from __future__ import annotations

from datetime import datetime

from tests.campaign.history import Delivery, History


class KeptLog:
    """Every event by version."""

    def __init__(self, history: History) -> None:
        self.events = history.events()
        self._age_seconds_min = history.log_age_seconds_min
        self._history = history

    @property
    def end(self) -> int:
        """The newest version."""
        return max(self.events, default=0)

    def may_lack(self, version: int, by: datetime) -> bool:
        """Whether the log may have dropped that version by then, as old as its event was."""
        if self._age_seconds_min is None:
            return False
        # Version 0 is before the first event, and is gone with it.
        event = self.events.get(max(1, version))
        return event is None or event.at is None or (by - event.at).total_seconds() >= self._age_seconds_min

    def may_lack_at(self, version: int, at: float) -> bool:
        """The same by an instant of the clients' clock."""
        return self.may_lack(version, self._history.moment(at))

    def of(self, tenant: str | None) -> list[Delivery]:
        """A tenant's events in order; all of them for operators (None)."""
        ordered = (self.events[version] for version in sorted(self.events))
        return [event for event in ordered if tenant is None or event.tenant_id == tenant]
