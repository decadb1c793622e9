"""A resource's `row_version` grows with every transition of its state, also with those that time alone brings about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.allocations.failures import Code
from orchestrator.nodes.commands.heartbeat import mark_node_offline
from orchestrator.reservations.queries import find_resource
from orchestrator.reservations.store.resources import Resource
from tests.allocations.driving import provision
from tests.allocations.seeding import SLICE_SKU, connect
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.passing_time import let_come
from tests.reservations.turning_over.consuming import consumed, soon
from tests.support.waiting import async_wait_for
from worker.sweepers.reservations import sweep_windows_over


class Watcher:
    """Reads resources repeatedly: a changed state must have a greater version, and no version ever decreases."""

    def __init__(self, client: ReservationClient, *names: str) -> None:
        self._desk = client
        self._names = names
        self._seen: dict[str, Resource] = {}
        self.states: dict[str, list[str]] = {name: [] for name in names}

    async def look(self) -> None:
        for name in self._names:
            now = await find_resource(self._desk.context.database, name, None)
            before = self._seen.get(name)
            if before is not None:
                assert now.row_version >= before.row_version, (name, before, now)
                assert now.state == before.state or now.row_version > before.row_version, (name, before, now)
            if before is None or now.state != before.state:
                self.states[name].append(now.state)
            self._seen[name] = now

    async def until(self, name: str, state: str) -> None:
        async def reached() -> bool:
            await self.look()
            return self.states[name][-1] == state

        await async_wait_for(reached, f"{name} to be {state}")


@pytest.mark.full
def test_every_transition_is_seen_in_the_version(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1)

    async def way(client: ReservationClient) -> None:
        seat, slot, node = "seat-0", client.slot(2), client.node()
        watcher = Watcher(client, seat, slot, node)

        async def step(action: Callable[[], Awaitable[object]]) -> None:
            await watcher.look()
            await action()
            await watcher.look()

        # A hold that begins now: confirmed, cancelled; another that a rival ends and takes over in one transaction.
        first = await client.held(seat, slot)
        await step(lambda: client.confirm(first))
        await step(lambda: client.cancel(first))
        late = await client.held(seat, slot)
        client.set_deadline(late, -1)
        await step(lambda: client.hold(seat, slot, holder="rival"))
        await step(lambda: _cancel_all(client))
        # Windows begin and end by time alone; then a sweeper ends what is past.
        begins = datetime.now(UTC) + timedelta(seconds=1.5)
        window = await client.held(seat, slot, starts_at=begins, ends_at=begins + timedelta(seconds=1.5))
        await step(lambda: client.confirm(window))
        assert watcher.states[seat][-1] == "available"
        await watcher.until(seat, "confirmed")
        await watcher.until(seat, "available")
        await step(lambda: sweep_windows_over(client.context, 10))
        # Several claims on one node, each going its own steps.
        held = [await client.held(client.slot(n)) for n in range(2, 6)]
        for one in held:
            await step(lambda one=one: client.confirm(one))  # type: ignore[misc]
        for one in held:
            await step(lambda one=one: client.cancel(one))  # type: ignore[misc]
        # The node goes and comes.
        with connect(database_url) as connection:
            connection.execute("update nodes set last_seen_at = clock_timestamp() - interval '1 day'")
        await step(lambda: mark_node_offline(client.context, seeded.nodes[0].id, 10))
        assert watcher.states[slot][-1] == "out_of_service"
        assert watcher.states[seat] == [
            "reserved", "confirmed", "available", "reserved", "available", "confirmed", "available",
        ]  # fmt: skip

    as_client(database_url, seeded, way)


def test_a_window_that_passes_while_its_units_are_waited_for_is_seen_in_the_version(database_url: str) -> None:
    """The right of an allocation that never got onto its units ends by time alone."""
    seeded = seed_with_seats(database_url, seats=0)

    async def way(client: ReservationClient) -> None:
        change = soon(3_600)
        first = await client.held(client.slot(0), client.slot(1), ends_at=change)
        second = await client.held(
            client.slot(1), client.slot(2), starts_at=change, ends_at=change + timedelta(seconds=6)
        )
        for one in (first, second):
            await client.confirm(one)
        await provision(client.context, client.url, await consumed(client, first, sku=SLICE_SKU))
        let_come(database_url, change)
        watcher = Watcher(client, client.slot(1), client.slot(2))
        waiting = await consumed(client, second, sku=SLICE_SKU)
        await watcher.until(client.slot(2), "available")
        with connect(database_url) as connection:
            connection.execute("update allocations set waits_until = clock_timestamp() where id = %s", (waiting,))
        assert await fail_unstarted(client.context, waiting) is Code.UNITS_NOT_FREE
        await watcher.look()
        assert watcher.states == {client.slot(1): ["confirmed"], client.slot(2): ["confirmed", "available"]}

    as_client(database_url, seeded, way)


async def _cancel_all(client: ReservationClient) -> None:
    with connect(client.url) as connection:
        found = connection.execute("select id, holder_id from reservations where state = 'hold'").fetchall()
    for id_, holder in found:
        await client.cancel(id_, holder=holder)
