"""Random stories of windows on two slots, in which hours pass: whatever overlaps in fact waits, and every invariant holds.

An hour passes when every time that is stored lies an hour further back.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import Context
from tests.allocations.driving import clean_up, provision, release, rows_of
from tests.allocations.seeding import SLICE_SKU, Seeded, add_node, connect, make_context
from tests.reservations.holding import ReservationClient, seed_with_seats
from tests.reservations.passing_time import let_pass
from tests.reservations.turning_over.consuming import consume, consumed, violations
from worker.sweepers.allocation_ends import announce_ends, release_ended
from worker.sweepers.reservation_starter import ReservationStarter
from worker.sweepers.reservations import sweep_overdue_holds, sweep_windows_over

COMMANDS = (
    "hold", "hold", "confirm", "consume", "consume", "consume", "cancel", "provision", "release", "clean_up", "clean_up",
    "an_hour_passes", "sweep", "sweep_units",
)  # fmt: skip
steps = st.tuples(st.sampled_from(COMMANDS), st.integers(0, 3), st.integers(0, 2), st.integers(1, 2))
OVERRUN = [
    ("hold", 0, 0, 1), ("confirm", 0, 0, 1), ("hold", 0, 1, 2), ("confirm", 1, 0, 1), ("consume", 0, 0, 1),
    ("provision", 0, 0, 1), ("an_hour_passes", 0, 0, 1), ("consume", 1, 0, 1), ("sweep", 0, 0, 1), ("clean_up", 0, 0, 1),
    ("provision", 1, 0, 1), ("an_hour_passes", 0, 0, 1), ("an_hour_passes", 0, 0, 1), ("sweep", 0, 0, 1),
]  # fmt: skip
"""One that overran, and the next one that waits and starts."""


@dataclass
class World:
    """One node, with its reservations and allocations."""

    client: ReservationClient
    reservations: list[UUID] = field(default_factory=list)
    allocations: list[UUID] = field(default_factory=list)

    async def take(self, command: str, which: int, starts: int, lasts: int) -> None:
        """One step; what cannot be done now is refused, which is as good."""
        client = self.client
        if command == "hold":
            now = datetime.now(UTC)
            begins = None if starts == 0 else now + timedelta(hours=starts)
            ends = (begins or now) + timedelta(hours=lasts)
            answer = await client.hold(client.slot(which % 2), starts_at=begins, ends_at=ends, ttl_seconds=3_600)
            if answer.status == 201:
                self.reservations.append(max(row[0] for row in rows_of(client.url, "select id from reservations")))
        elif command == "an_hour_passes":
            let_pass(client.url, timedelta(hours=1))
        elif command == "sweep":
            await self._sweep()
        elif command == "sweep_units":
            await ReservationStarter(client.context, client.catalogue, 10).start_waiting()
        elif command in ("confirm", "consume", "cancel"):
            if which < len(self.reservations):
                await self._with_reservation(command, self.reservations[which])
        elif which < len(self.allocations):
            await self._with_allocation(command, self.allocations[which])

    async def _sweep(self) -> None:
        context = self.client.context
        for (allocation_id,) in rows_of(self.client.url, "select id from allocations where waits_for = 'units'"):
            await fail_unstarted(context, allocation_id)
        await announce_ends(context, 10)
        await release_ended(context, 10)
        await sweep_overdue_holds(context, 10)
        await sweep_windows_over(context, 10)

    async def _with_reservation(self, command: str, reservation_id: UUID) -> None:
        if command == "confirm":
            await self.client.confirm(reservation_id)
        elif command == "cancel":
            await self.client.cancel(reservation_id)
        else:
            answer = await consume(self.client, reservation_id, sku=SLICE_SKU)
            if answer.status == 201:
                found = rows_of(self.client.url, "select id from allocations where reservation_id = %s", reservation_id)
                self.allocations.append(found[0][0])

    async def _with_allocation(self, command: str, allocation_id: UUID) -> None:
        url, context = self.client.url, self.client.context
        ((state, waits_for),) = rows_of(url, "select state, waits_for from allocations where id = %s", allocation_id)
        if command == "provision" and state == "requested":
            if waits_for == "units":
                await begin_provisioning(context, allocation_id, "wf")
            else:
                await provision(context, url, allocation_id)
        elif command == "release" and state != "failed":
            await release(context, self.client.seeded, allocation_id)
        elif command == "clean_up" and state == "releasing":
            await clean_up(context, url, allocation_id)


@pytest.fixture
def fleet(database_url: str) -> tuple[str, Seeded]:
    """A database whose examples bring a node each."""
    return database_url, seed_with_seats(database_url)


async def _play(context: Context, world: World, story: list[tuple[str, int, int, int]]) -> None:
    try:
        for step in story:
            await world.take(*step)
            assert violations(world.client.url) == [], step
    finally:
        await context.database.close()


@pytest.mark.parametrize("examples", [3, pytest.param(15, marks=pytest.mark.full)])
def test_every_story_keeps_every_invariant(fleet: tuple[str, Seeded], examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @example(story=OVERRUN)
    @given(story=st.lists(steps, min_size=4, max_size=16))
    def play(story: list[tuple[str, int, int, int]]) -> None:
        url, seeded = fleet
        with connect(url) as connection:
            node = add_node(connection, seeded.pools["gpu_slice"], f"node-{uuid.uuid4().hex[:8]}", "gpu_slice")
        context = make_context(url)
        own = Seeded(seeded.tenant_id, seeded.ssh_key_id, seeded.pools, [node])
        world = World(ReservationClient(url, context, own, CatalogueCache(context.database, 60.0)))
        asyncio.run(_play(context, world, story))
        if story == OVERRUN:
            waited = rows_of(url, "select allocation_id from allocation_timeline where code = 'units_free'")
            assert [row[0] for row in waited] == [world.allocations[1]]

    play()


def test_a_history_has_more_than_refusals(database_url: str) -> None:
    """The steps do what they are called after: a claim goes from a hold to an end."""
    seeded = seed_with_seats(database_url)
    context = make_context(database_url)

    async def way() -> list[str]:
        client = ReservationClient(database_url, context, seeded, CatalogueCache(context.database, 60.0))
        try:
            held = await client.held(client.slot(0))
            made = await consumed(client, held, sku=SLICE_SKU)
            world = World(client, [held], [made])
            for command in ("provision", "release", "clean_up"):
                await world.take(command, 0, 0, 1)
            rows = rows_of(database_url, "select state from allocations union all select state from reservations")
            return [row[0] for row in rows]
        finally:
            await context.database.close()

    assert asyncio.run(way()) == ["released", "consumed"]
