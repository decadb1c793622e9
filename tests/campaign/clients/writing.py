"""One write, as a careful client does it: the same key until the outcome is definite, every attempt noted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from berth.client import AsyncClient, BerthError, OperationConflict, OperationFenced, Reservation
from berth.client.keyvalue_models import Commit
from tests.campaign.clients.reading import SECRETS, Reader, hold_sight_of
from tests.campaign.clients.writes import Write
from tests.campaign.history import SETTLED, Attempt, History, Outcome
from tests.support.waiting import pause

PATIENCE_SECONDS_MAX = 30.0
"""A client that leaves repeating to the library waits so long for it."""
ASKING_SHARE = 0.5
"""How often the key is asked for when an outcome was unknown."""

REFUSALS = frozenset(
    {"not_found", "invalid_state", "already_exists", "sku_unavailable", "quota_exceeded", "ssh_key_not_found",
     "image_unavailable", "resource_busy", "resource_not_found", "resource_out_of_service", "resource_not_allocatable",
     "reservation_not_found", "reservation_retired", "holder_mismatch", "ttl_out_of_range", "window_invalid",
     "balance_depleted", "balance_out_of_bounds", "webhook_busy", "webhook_keys_full",
     "image_in_use", "node_in_use", "verb_in_progress", "maintenance_conflict", "maintenance_window_invalid"}
)  # fmt: skip
"""Codes of business refusals: remembered with the key (docs/reference/http-api.md)."""


class Writer:
    """Sends writes through any of `clients` (one per API process, all of one principal).

    `patient`: these clients repeat by themselves, and their last word is taken.
    """

    def __init__(
        self,
        name: str,
        clients: Sequence[AsyncClient],
        history: History,
        chance: random.Random,
        *,
        patient: bool = False,
    ) -> None:
        self.name = name
        self.clients = clients
        self._history = history
        self._chance = chance
        self._seconds_max = PATIENCE_SECONDS_MAX if patient else history.attempt_seconds_max
        self._final = SETTLED | {Outcome.CONFLICT} | ({Outcome.NOT_DONE} if patient else set())
        self._reader = Reader(name, clients, history, chance)
        self.give_up_at = float("inf")
        self._first_began: dict[str, float] = {}

    async def write(self, write: Write) -> Attempt:
        """The first definite attempt; the last one if the time is up before any was, or on a conflict."""
        seconds = 0.1
        final = self._final
        while True:
            attempt = await self.attempt(write, self._chance.choice(self.clients))
            if attempt.outcome is Outcome.UNKNOWN:
                # A later attempt that was surely not done says nothing about this one.
                final = final - {Outcome.NOT_DONE}
            if attempt.outcome in final or time.monotonic() > self.give_up_at:
                return attempt
            is_open = attempt.outcome is Outcome.UNKNOWN and self._chance.random() < ASKING_SHARE
            if is_open or attempt.code in write.hopeless:
                # The repetition must return the same as the status query.
                await self.ask(write)
            await pause(seconds * self._chance.uniform(0.5, 1.0))
            seconds = min(seconds * 2, 1.0)

    async def ask(self, write: Write) -> None:
        """Ask what became of it."""
        await self._reader.operation(write.key, write.kind)

    async def attempt(self, write: Write, client: AsyncClient) -> Attempt:
        """Send once and record the response."""
        began = time.monotonic()
        self._first_began.setdefault(write.key, began)
        outcome, code, answer, allocation_id = Outcome.UNKNOWN, "client_timeout", "", write.allocation_id
        reservation_id = write.reservation_id
        try:
            async with asyncio.timeout(self._seconds_max):
                told = await write.send(client, write.key)
        except TimeoutError:
            pass
        except BerthError as error:
            outcome, code = _meaning(error), error.code
            answer = f"{error.code}: {error.detail}" if outcome is Outcome.REFUSED else error.detail
        else:
            outcome, code, answer = Outcome.DONE, "ok", told.model_dump_json(exclude=SECRETS)
            allocation_id = _allocation_of(told)
            if isinstance(told, Reservation):
                reservation_id = told.reservation_id
                # A repetition returns the first attempt's response: as old as that one.
                self._history.holds.append(hold_sight_of(told, self._first_began[write.key]))
            if isinstance(told, Commit) and told.status == "not_committed":
                outcome, code = Outcome.REFUSED, told.status
        noted = Attempt(
            write.key,
            write.kind,
            self.name,
            write.content,
            began,
            time.monotonic(),
            outcome,
            code,
            answer,
            allocation_id,
            reservation_id,
            client.exchange.address,
        )
        self._history.attempts.append(noted)
        return noted


def _meaning(error: BerthError) -> Outcome:
    if isinstance(error, OperationConflict):
        return Outcome.CONFLICT
    if isinstance(error, OperationFenced):
        return Outcome.FENCED
    if error.outcome == "unknown":
        return Outcome.UNKNOWN
    if error.outcome == "in_progress":
        return Outcome.IN_PROGRESS
    return Outcome.REFUSED if error.code in REFUSALS else Outcome.NOT_DONE


def _allocation_of(told: Any) -> UUID | None:
    found = getattr(told, "allocation_id", None)
    return found if isinstance(found, UUID) else None
