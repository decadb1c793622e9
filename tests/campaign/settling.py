"""After the faults: everything runs again, everything allocated is released, and each allocation reaches its end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import psycopg

from berth.cli.known_stack import StackProblem
from berth.client import Allocation, AsyncClient, BerthError
from tests.campaign.clients.reading import hold_sight_of, sight_of
from tests.campaign.clients.writes import cancel, force_release
from tests.campaign.clients.writing import Writer
from tests.campaign.history import History
from tests.campaign.stage import Stage
from tests.campaign.subscriber import Subscriber
from tests.proxy import Mode
from tests.support.waiting import pause, read_until

LOOK_SECONDS = 0.5
FORCE_AGAIN_SECONDS = 5.0
HEAL_SECONDS_MAX = 120.0


async def heal(stage: Stage) -> None:
    """Resume what is paused, start what is dead, mend what is cut, and wait until every process is ready."""
    await asyncio.to_thread(stage.calm)
    for name in [*stage.server_names, *stage.process_names]:
        await asyncio.to_thread(stage.resume, name)
    for link in [*stage.links.by_name.values(), *stage.routes.by_name.values()]:
        link.set_mode(Mode.PASS)
    gives_up = time.monotonic() + HEAL_SECONDS_MAX
    while True:
        for name in [*stage.server_names, *stage.process_names]:
            await asyncio.to_thread(stage.start, name)
        try:
            await asyncio.to_thread(stage.wait_ready)
        except StackProblem:
            # A process that waited in vain for a server ends, and its service manager starts it again.
            if time.monotonic() > gives_up:
                raise
        else:
            return


class Settler:
    """An operator releases everything, and tenants cancel their reservations."""

    def __init__(self, admin: AsyncClient, tenants: Sequence[AsyncClient], history: History) -> None:
        self._admin = admin
        self._tenants = tenants
        self._history = history
        self._writer = Writer("settler", [admin], history, random.Random("settler"))
        self._forced: dict[object, float] = {}
        self._numbers = iter(range(1_000_000))

    async def settle(self, seconds: float) -> list[str]:
        """Return what has not come to its end when the time is up; nothing, if all is well."""
        until = time.monotonic() + seconds
        self._writer.give_up_at = until
        while True:
            # Reservations first: what is cancelled starts nothing any more.
            live = [one for tenant in self._tenants for one in await self._cancel_live(tenant)]
            asked = time.monotonic()
            try:
                found = [allocation async for allocation in self._admin.iterate_all_allocations(limit=200)]
            except BerthError:
                found = []
            waiting = [allocation for allocation in found if not _ended(allocation)]
            for allocation in found:
                self._history.settled[allocation.allocation_id] = sight_of("settler", allocation, asked)
            if found and not waiting and not live:
                return []
            if time.monotonic() > until:
                stuck = [f"{a.allocation_id} is {a.status}, waits for {a.waits and a.waits.for_}" for a in waiting]
                return stuck + live
            await asyncio.gather(*(self._give_back(allocation) for allocation in waiting))
            await pause(LOOK_SECONDS)  # the pace of reads and releases

    async def _cancel_live(self, tenant: AsyncClient) -> list[str]:
        """Cancel what the tenant holds; a sentence for each, or for not knowing."""
        found = []
        for state in ("hold", "confirmed"):
            asked = time.monotonic()
            try:
                live = [one async for one in tenant.iterate_reservations(state=state, limit=200)]
            except BerthError as error:
                return [f"the reservations that are {state} cannot be asked for: {error}"]
            self._history.holds += [hold_sight_of(one, asked) for one in live]
            found += live
        writer = Writer("settler", [tenant], self._history, random.Random("cancelling"))
        writer.give_up_at = self._writer.give_up_at
        for one in found:
            await writer.write(cancel(f"settle.{next(self._numbers)}", one.reservation_id, one.holder_id))
        return [f"reservation {one.reservation_id} is {one.status}" for one in found]

    async def _give_back(self, allocation: Allocation) -> None:
        stuck = allocation.status in ("active", "release_failed") or (
            allocation.status == "failed" and allocation.waits is not None and allocation.waits.for_ == "operator"
        )
        if stuck and time.monotonic() - self._forced.get(allocation.allocation_id, 0.0) > FORCE_AGAIN_SECONDS:
            self._forced[allocation.allocation_id] = time.monotonic()
            await self._writer.write(force_release(f"settle.{next(self._numbers)}", allocation.allocation_id))


def _ended(allocation: Allocation) -> bool:
    """Final, and nothing of it is on its node any more."""
    return allocation.status in ("released", "failed") and allocation.waits is None


async def catch_up(database_url: str, subscriber: Subscriber, seconds: float = 20.0) -> str | None:
    """Wait until every event has a version and the subscriber has seen the last; a sentence if that does not come."""

    async def behind() -> str | None:
        with psycopg.connect(database_url) as connection:
            row = connection.execute("select version, (select count(*) from outbox) from log_head").fetchone()
        head, waiting = row or (0, 0)
        if not waiting and subscriber.cursor >= head:
            return None
        return f"{waiting} events wait for a version, the log ends at {head}, the subscriber at {subscriber.cursor}"

    return await read_until(behind, lambda sentence: sentence is None, seconds)
