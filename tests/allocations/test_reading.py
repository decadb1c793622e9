"""What clients read of allocations: their own only, in pages that neither skip nor repeat."""

from __future__ import annotations

import uuid

from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.rows import (
    allocation_body,
    list_allocations,
    read_allocation,
    read_timeline,
    timeline_entry,
)
from orchestrator.operations.execution import Context
from tests.allocations.driving import clean_up, provision, release, run_with
from tests.allocations.seeding import add_tenant, connect, create_allocation, create_many, seed


def test_own_allocations_only(database_url: str) -> None:
    seeded = seed(database_url)
    with connect(database_url) as connection:
        stranger = add_tenant(connection, "stranger")
    allocation_id = create_allocation(database_url, seeded)

    async def read(context: Context) -> None:
        async with context.database.reading() as reading:
            assert await read_allocation(reading, allocation_id, stranger.tenant_id) is None
            assert await read_allocation(reading, uuid.uuid4(), None) is None
            assert await list_allocations(reading, stranger.tenant_id) == []
            assert len(await list_allocations(reading, None)) == 1

    run_with(database_url, read)


def test_pages_and_filters(database_url: str) -> None:
    seeded = seed(database_url)
    plain = create_many(database_url, seeded, 4)
    labelled = create_many(database_url, seeded, 2, labels={"team": "red", "run": "7"})

    async def read(context: Context) -> None:
        await provision(context, database_url, plain[0])
        async with context.database.reading() as reading:
            seen: list[uuid.UUID] = []
            while page := await list_allocations(reading, seeded.tenant_id, after=seen[-1] if seen else None, limit=4):
                seen += [row.id for row in page]
            assert seen == sorted([*plain, *labelled])
            red = await list_allocations(reading, seeded.tenant_id, label=("team", "red"))
            assert {row.id for row in red} == set(labelled)
            active = await list_allocations(reading, None, state=AllocationState.ACTIVE)
            assert [row.id for row in active] == [plain[0]]

    run_with(database_url, read)


def test_the_body_has_all_members(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=0, metal_nodes=1)
    allocation_id = create_allocation(database_url, seeded, shape="baremetal", name="train", labels={"a": "b"})

    async def read(context: Context) -> None:
        await provision(context, database_url, allocation_id)
        async with context.database.reading() as reading:
            active = allocation_body(await read_allocation(reading, allocation_id, seeded.tenant_id))  # type: ignore[arg-type]
        assert (active["status"], active["node"], active["slots"]) == ("active", seeded.nodes[0].name, list(range(8)))
        assert active["connection"]["user"] == "tenant"
        assert active["waits"]["for"] == "tenant"
        assert active["waits"]["until"] is None
        assert active["labels"] == {"a": "b"}
        await release(context, seeded, allocation_id)
        await clean_up(context, database_url, allocation_id)
        async with context.database.reading() as reading:
            row = await read_allocation(reading, allocation_id, seeded.tenant_id)
            assert row is not None
            released = allocation_body(row)
            entries = await read_timeline(reading, allocation_id)
            rest = await read_timeline(reading, allocation_id, after=entries[2].id)
        assert (released["status"], released["hard_stopped"], released["waits"]) == ("released", False, None)
        assert released["requested_at"] < released["active_at"] < released["releasing_at"] < released["released_at"]
        assert [row.id for row in rest] == [row.id for row in entries[3:]]
        told = [timeline_entry(row) for row in entries]
        states = [(entry["from"], entry["to"]) for entry in told if entry["kind"] == "transition"]
        assert states == [
            (None, "requested"),
            ("requested", "provisioning"),
            ("provisioning", "active"),
            ("active", "releasing"),
            ("releasing", "released"),
        ]
        assert {entry["actor"]["kind"] for entry in told} == {"tenant", "worker", "node"}

    run_with(database_url, read)
