"""After the storm: everything runs again, everything allocated is given back, and each allocation comes to its end."""

from __future__ import annotations

import asyncio
import random
import time

import psycopg

from berth.client import Allocation, AsyncClient, BerthError
from tests.campaign.history import History
from tests.campaign.load import force_release, sight_of
from tests.campaign.stage import Stage
from tests.campaign.subscriber import Subscriber
from tests.campaign.writing import Writer
from tests.proxy import Mode

LOOK_SECONDS = 0.5
FORCE_AGAIN_SECONDS = 5.0


async def heal(stage: Stage) -> None:
    """Resume what is paused, start what is dead, mend what is cut, and wait until every process is ready."""
    for name in [*stage.server_names, *stage.process_names]:
        await asyncio.to_thread(stage.resume, name)
    for name in [*stage.server_names, *stage.process_names]:
        await asyncio.to_thread(stage.start, name)
    for link in stage.links.by_name.values():
        link.set_mode(Mode.PASS)
    await asyncio.to_thread(stage.wait_ready)


class Settler:
    """An operator who gives everything back."""

    def __init__(self, admin: AsyncClient, history: History) -> None:
        self._admin = admin
        self._history = history
        self._writer = Writer("settler", [admin], history, random.Random("settler"))
        self._forced: dict[object, float] = {}
        self._numbers = iter(range(1_000_000))

    async def settle(self, seconds: float) -> list[str]:
        """Return what has not come to its end when the time is up; nothing, if all is well."""
        until = time.monotonic() + seconds
        self._writer.give_up_at = until
        while True:
            asked = time.monotonic()
            try:
                found = [allocation async for allocation in self._admin.iterate_all_allocations(limit=200)]
            except BerthError:
                found = []
            waiting = [allocation for allocation in found if not _ended(allocation)]
            for allocation in found:
                self._history.settled[allocation.allocation_id] = sight_of("settler", allocation, asked)
            if found and not waiting:
                return []
            if time.monotonic() > until:
                return [f"{a.allocation_id} is {a.status}, waits for {a.waits and a.waits.for_}" for a in waiting]
            await asyncio.gather(*(self._give_back(allocation) for allocation in waiting))
            await asyncio.sleep(LOOK_SECONDS)

    async def _give_back(self, allocation: Allocation) -> None:
        stuck = allocation.status in ("active", "release_failed") or (
            allocation.status == "failed" and allocation.waits is not None and allocation.waits.for_ == "operator"
        )
        if stuck and time.monotonic() - self._forced.get(allocation.allocation_id, 0.0) > FORCE_AGAIN_SECONDS:
            self._forced[allocation.allocation_id] = time.monotonic()
            await self._writer.write(force_release(allocation.allocation_id, f"settle.{next(self._numbers)}"))


def _ended(allocation: Allocation) -> bool:
    """Final, and nothing of it is on its node any more."""
    return allocation.status in ("released", "failed") and allocation.waits is None


async def catch_up(database_url: str, subscriber: Subscriber, seconds: float = 20.0) -> str | None:
    """Wait until every event has a version and the subscriber has seen the last; a sentence if that does not come."""
    until = time.monotonic() + seconds
    while True:
        with psycopg.connect(database_url) as connection:
            row = connection.execute("select version, (select count(*) from outbox) from log_head").fetchone()
        head, waiting = row or (0, 0)
        if not waiting and subscriber.cursor >= head:
            return None
        if time.monotonic() > until:
            return f"{waiting} events wait for a version, the log ends at {head}, the subscriber at {subscriber.cursor}"
        await asyncio.sleep(0.2)
