"""Decides, answer by answer, whether something has come into the state it was waited for. Pure but for the steady clock."""

from __future__ import annotations

import random
from collections.abc import Collection

from berth.client.models import FINAL_STATES, Allocation
from berth.client.requests.clocks import steady_seconds
from berth.client.reservation_models import RESERVATION_FINAL_STATES, Reservation
from berth.client.waiting_errors import StateUnreachable, WaitTimeout

POLL_SECONDS_FIRST = 0.05
POLL_SECONDS_MAX = 1.0


class Waiting:
    """One wait for any of some states, with a deadline that no jump of the wall clock moves."""

    def __init__(self, states: Collection[str], timeout_seconds: float) -> None:
        self.states = frozenset(states)
        self.timeout_seconds = timeout_seconds
        self._until = steady_seconds() + timeout_seconds
        self._pause = POLL_SECONDS_FIRST

    def pause_seconds(self, found: Allocation | Reservation) -> float | None:
        """None when the state is reached and no verb of the guest is in progress, else how long to wait before asking again.

        Raises `StateUnreachable` when it has ended otherwise, `WaitTimeout` when the time is up; both hold what was found
        under `allocation` or `reservation`.
        """
        changing = isinstance(found, Allocation) and found.guest is not None and found.guest.verb is not None
        if found.status in self.states and not changing:
            return None
        kind, id_, final = _described(found)
        wanted = " or ".join(sorted(self.states))
        extra = {kind: found, "state": found.status}
        if found.status in final:
            why = f": {found.failure.code}: {found.failure.detail}" if found.failure else ""
            raise StateUnreachable(
                f"{kind} {id_} is {found.status} and will not become {wanted}{why}",
                code="state_unreachable",
                extra=extra,
            )
        left = self._until - steady_seconds()
        if left <= 0:
            raise WaitTimeout(
                f"{id_} is {found.status} after {self.timeout_seconds:g} s, not {wanted}",
                code="wait_timeout",
                extra=extra,
            )
        pause = min(self._pause * random.uniform(0.75, 1.0), left)
        self._pause = min(self._pause * 1.5, POLL_SECONDS_MAX)
        return pause


def _described(found: Allocation | Reservation) -> tuple[str, str, frozenset[str]]:
    if isinstance(found, Allocation):
        return "allocation", str(found.allocation_id), FINAL_STATES
    return "reservation", str(found.reservation_id), RESERVATION_FINAL_STATES
