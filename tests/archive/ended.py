"""Ended allocations in a database, and what is left of them."""

from __future__ import annotations

from uuid import UUID

from orchestrator.operations.execution import Context
from tests.allocations.driving import clean_up, provision, release, rows_of, run_with
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.consumers.metered import meter_all
from tests.verifying import broken_promises

TABLES = {
    "allocations": "id", "claims": "owner_id", "allocation_timeline": "allocation_id", "node_tasks": "allocation_id",
}  # fmt: skip


def end_allocations(url: str, seeded: Seeded, count: int) -> list[UUID]:
    """Create, provision, release and clean up allocations; they are metered."""
    made = [create_allocation(url, seeded) for _ in range(count)]

    async def way(context: Context) -> None:
        for allocation_id in made:
            await provision(context, url, allocation_id)
            await release(context, seeded, allocation_id)
            await clean_up(context, url, allocation_id)

    run_with(url, way)
    with connect(url) as connection:
        # Nodes report here without having leased the task; the proof requires that the task reached a node.
        connection.execute("update node_tasks set dispatched_at = queued_at where finished_at is not null")
    meter_all(url)
    return made


def seeded_with(url: str, count: int) -> tuple[Seeded, list[UUID]]:
    """A fleet and ended allocations."""
    seeded = seed(url)
    return seeded, end_allocations(url, seeded, count)


def age(url: str, allocation_id: UUID, days: int, ended_days: int | None = None) -> UUID:
    """Make an ended allocation older, its id included; return the new id. `ended_days`: when it ended, if later."""
    ended = days if ended_days is None else ended_days
    with connect(url) as connection:
        row = connection.execute("select uuidv7(make_interval(days => %s))", (-days,)).fetchone()
        assert row is not None
        for table, column in TABLES.items():
            statement = f"update {table} set {column} = %s where {column} = %s"
            connection.execute(statement.encode(), (row[0], allocation_id))
        connection.execute("alter table metering_intervals disable trigger all")
        connection.execute(
            "update metering_intervals set allocation_id = %s where allocation_id = %s", (row[0], allocation_id)
        )
        moved = "update allocations set released_at = released_at - make_interval(days => %s) where id = %s"
        connection.execute(moved, (ended, row[0]))
        closed = "update claims set closed_at = closed_at - make_interval(days => %s) where owner_id = %s"
        connection.execute(closed, (ended, row[0]))
        return UUID(str(row[0]))


def left_of(url: str, allocation_id: UUID) -> list[str]:
    """Tables that have a row of the allocation."""
    found = []
    for table, column in TABLES.items():
        if rows_of(url, f"select {column} from {table} where {column} = %s limit 1", allocation_id):
            found.append(table)
    return found


def archived_in(url: str) -> dict[UUID, int]:
    """Archived allocations with their segments."""
    return dict(rows_of(url, "select allocation_id, segment from archived_allocations"))


def violations(url: str) -> dict[str, list[str]]:
    """What `berth verify` finds, by promise."""
    with connect(url) as connection:
        connection.execute("select log_advance(10000)")
    return broken_promises(url)
