"""Reads, as clients send them, each recorded with the times of request and response."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, RootModel

from berth.client import (
    Allocation,
    AsyncClient,
    BerthError,
    ConcurrencyLimited,
    CreatedAllocation,
    NotFound,
    Payment,
    RateLimited,
    Replayed,
    Reservation,
    ReservationNotFound,
    ReservationRetired,
    SshKey,
    Webhook,
)
from berth.client.keyvalue_models import Commit
from tests.campaign.accounts import Limited
from tests.campaign.fleet_history import FLEET_ANSWERS
from tests.campaign.history import History, HoldSight, Offer, Question, ResourceSight, Sight, WriteKind

READ_SECONDS_MAX = 5.0


class Empty(RootModel[None]):
    """The answer of a write that returns nothing."""


ON_ITS_WAY = frozenset({"requested", "provisioning"})
ANSWERS: dict[str, type[BaseModel]] = {
    "create": CreatedAllocation, "take": CreatedAllocation, "release": Allocation, "force_release": Allocation,
    "update": Allocation, "hold": Reservation, "confirm": Reservation, "cancel": Reservation, "commit": Commit,
    "hook": Webhook, "hook_change": Webhook, "hook_rotate": Webhook, "hook_replay": Replayed, "hook_delete": Empty,
    "top_up": Payment, "withdraw": Payment, "key_add": SshKey, "key_remove": Empty, "verb": Allocation,
    **FLEET_ANSWERS,
}  # fmt: skip
"""What each kind of write is answered."""
SECRETS = {"secret"}
"""Members that a response to a status query does not show."""

T = TypeVar("T")


class Reader:
    """Reads through any of `clients` (one per API process, all of one principal). What fails is only counted."""

    def __init__(self, name: str, clients: Sequence[AsyncClient], history: History, chance: random.Random) -> None:
        self.name = name
        self._clients = clients
        self._history = history
        self._chance = chance

    async def allocation(self, allocation_id: UUID) -> Sight | None:
        """One allocation; None if there was no answer, or none that shows it."""
        asked = time.monotonic()
        try:
            found = await self._ask("get", lambda client: client.get_allocation(allocation_id))
        except NotFound:
            self._history.sights.append(Sight(self.name, allocation_id, asked, time.monotonic(), None))
            return None
        if found is None:
            return None
        self._history.sights.append(sight := sight_of(self.name, found, asked))
        return sight

    async def allocations(self, **asked_for: str) -> list[Sight]:
        """A page of the list."""
        asked = time.monotonic()
        page = await self._ask("list", lambda client: client.list_allocations(limit=50, **asked_for))  # type: ignore[arg-type]
        sights = [sight_of(self.name, found, asked) for found in (page.items if page else ())]
        self._history.sights.extend(sights)
        return sights

    async def reservation(self, reservation_id: UUID) -> HoldSight | None:
        """One reservation; None if there was no answer."""
        asked = time.monotonic()
        try:
            found = await self._ask("reservation", lambda client: client.get_reservation(reservation_id))
        except (ReservationRetired, ReservationNotFound) as gone:
            status = gone.code.removeprefix("reservation_")
            sight = HoldSight(reservation_id, asked, time.monotonic(), status)
        else:
            if found is None:
                return None
            sight = hold_sight_of(found, asked)
        self._history.holds.append(sight)
        return sight

    async def resource(self, name: str) -> ResourceSight | None:
        """One resource; None if there was no answer."""
        asked = time.monotonic()
        found = await self._ask("resource", lambda client: client.get_resource(name))
        if found is None:
            return None
        sight = ResourceSight(name, asked, time.monotonic(), found.state, found.row_version)
        self._history.resources.append(sight)
        return sight

    async def availability(self, **asked_for: Any) -> list[Offer]:
        """What could be had; nothing if there was no answer."""
        page = await self._ask("availability", lambda client: client.get_availability(**asked_for))
        offers = [
            Offer(
                one.sku, one.region, one.free_gpus, one.largest_now, one.total_gpus, one.gpus, one.count, one.available,
                one.starts_at, one.earliest_at, one.reason,
            )
            for one in (page.items if page else ())
        ]  # fmt: skip
        self._history.offers.extend(offers)
        return offers

    async def operation(self, key: str, kind: WriteKind) -> Question | None:
        """What became of a write; None if there was no answer."""
        asked = time.monotonic()
        told = await self._ask("operation", lambda client: client.get_operation(key))
        if told is None:
            return None
        answer = ""
        if told.state == "committed":
            model = ANSWERS[kind]
            result = {} if told.result is None and model is not Empty else told.result
            answer = model.model_validate(result).model_dump_json(exclude=SECRETS)
        elif told.state == "rejected":
            answer = f"{told.code}: {told.result['detail']}"
        self._history.questions.append(question := Question(key, kind, asked, time.monotonic(), told.state, answer))
        return question

    async def _ask(self, what: str, read: Callable[[AsyncClient], Awaitable[T]]) -> T | None:
        """The answer; None where there was none in time. Raises `NotFound` and `ReservationRetired`."""
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                found = await read(self._chance.choice(self._clients))
        except (NotFound, ReservationRetired):
            raise
        except (BerthError, TimeoutError) as error:
            if isinstance(error, RateLimited | ConcurrencyLimited):
                self._history.accounts.limited.append(Limited(self.name, what))
            self._history.count_read(f"{what} {getattr(error, 'code', 'client_timeout')}")
            return None
        if what != "get":  # counted by their sights
            self._history.count_read(f"{what} ok")
        return found


def sight_of(client: str, found: Allocation, asked: float) -> Sight:
    """What a read showed."""
    return Sight(
        client, found.allocation_id, asked, time.monotonic(), found.status, found.row_version, found.node,
        tuple(found.slots), birth_of(found),
        found.waits.until if found.waits is not None and found.status in ON_ITS_WAY else None,
        found.failed_at, found.failure.code if found.failure else None, found.reservation_id, found.requested_at,
        found.ends_at,
    )  # fmt: skip


def birth_of(allocation: Allocation) -> str:
    """What never changes about an allocation."""
    facts = (
        allocation.sku, allocation.gpus, allocation.region, allocation.correlation_id, allocation.requested_at,
        allocation.reservation_id,
    )  # fmt: skip
    return " ".join(str(fact) for fact in facts)


def hold_sight_of(found: Reservation, asked: float) -> HoldSight:
    """What an answer showed."""
    return HoldSight(
        found.reservation_id, asked, time.monotonic(), found.status, found.row_version or 0, tuple(found.resources),
        found.held_at, found.expires_at, found.confirmed_at, found.ended_at, found.ends_at, found.starts_at,
        found.retire_after, found.failure.code if found.failure else None,
    )  # fmt: skip
