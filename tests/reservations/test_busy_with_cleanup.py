"""A hold that only cleanup prevents says so, and since when; whatever else is in the way, it does not."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import allocation_of, clean_up, provision, release
from tests.allocations.seeding import add_tenant, connect, create_allocation
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats


def waits_of(answer: Answer) -> tuple[Any, ...]:
    """Code, conflicts and wait of a refusal."""
    body = json.loads(answer.body)
    return body["code"], body["conflicts"], body.get("waits_for"), body.get("since")


def slots_of(url: str, client: ReservationClient, allocation: UUID) -> list[str]:
    """The names of an allocation's slots."""
    claim = allocation_of(url, allocation)["claim_id"]
    with connect(url) as connection:
        rows = connection.execute(
            "select generate_series(lower(part), upper(part) - 1) - n.unit_base from claims c, unnest(c.units) part, nodes n"
            " where c.id = %s and n.id = c.node_id",
            (claim,),
        ).fetchall()
    return [client.slot(index) for (index,) in rows]


def another_tenant(url: str) -> UUID:
    """A tenant beside the seeded one."""
    with connect(url) as connection:
        return add_tenant(connection, "another").tenant_id


def test_a_hold_that_only_cleanup_prevents_names_the_cleanup_and_its_begin(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded)
        (slot,) = slots_of(database_url, client, made)
        other = another_tenant(database_url)
        assert waits_of(await client.hold(slot)) == ("resource_busy", [f"allocations/{made}"], None, None)
        assert waits_of(await client.hold(slot, tenant_id=other)) == ("resource_busy", [], None, None)
        await provision(client.context, database_url, made)
        await release(client.context, seeded, made)
        code, conflicts, waits_for, since = waits_of(await client.hold(slot, tenant_id=other))
        assert (code, conflicts, waits_for) == ("resource_busy", [], "cleanup")
        assert datetime.fromisoformat(since) == allocation_of(database_url, made)["releasing_at"]
        own = waits_of(await client.hold(slot))
        assert own == ("resource_busy", [f"allocations/{made}"], "cleanup", since), "the owner learns it too"
        await clean_up(client.context, database_url, made)
        assert (await client.hold(slot, tenant_id=other)).status == 201

    as_client(database_url, seeded, way)


def test_a_right_in_the_way_hides_the_cleanup_beside_it(database_url: str) -> None:
    seeded = seed_with_seats(database_url, seats=1)

    async def way(client: ReservationClient) -> None:
        made = create_allocation(database_url, seeded)
        (slot,) = slots_of(database_url, client, made)
        await provision(client.context, database_url, made)
        await release(client.context, seeded, made)
        other = another_tenant(database_url)
        held = await client.held("seat-0")
        answer = waits_of(await client.hold(slot, "seat-0", tenant_id=other))
        assert answer == ("resource_busy", [], None, None), "the seat is held"
        client.set_deadline(held, -1)
        answer = waits_of(await client.hold(slot, "seat-0", tenant_id=other))
        assert answer[2] == "cleanup", "an overdue hold is no right"

    as_client(database_url, seeded, way)
