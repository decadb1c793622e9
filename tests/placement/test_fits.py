"""A node's free slots are what its claims say, also where a create that lost corrects them while a rival changes the claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg

from orchestrator.verification.derived import check_fit
from orchestrator.verification.verdict import Bounds
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.placement.fleet import create_all
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.support.waiting import async_wait_for
from tests.support.window_creates import create, status_of

SHOW_ALL_FREE = "update nodes set free_mask = 255, fit_class = 4 * 64 + 4"
"""A create that trusts it is refused by the constraint on claims, and then corrects it."""
WAITING = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
Rival = Callable[[ReservationClient, list[UUID]], Coroutine[Any, Any, Any]]


async def cancel_one(client: ReservationClient, held: list[UUID]) -> Any:
    """Free a slot of the node."""
    return (await client.cancel(held[0])).status


async def create_one(client: ReservationClient, _: list[UUID]) -> Any:
    """Take a free slot of the node."""
    (result,) = await create_all(client.context, client.catalogue, [create(client, None)])
    return status_of(result)


def race_with(url: str, rival: Rival) -> tuple[Any, list[str]]:
    """The rival's status, and what `berth verify` finds wrong with the fit of the only node.

    Two of its slots are held. A create of all eight is refused by the constraint and reads the claims to correct the fit; then
    it waits, because another session has locked the table of slots. Meanwhile the rival changes a claim of the node.
    """
    seeded = seed_with_seats(url)

    async def scene(client: ReservationClient) -> Any:
        held = [await client.held(client.slot(index)) for index in (6, 7)]
        with connect(url) as connection:
            connection.execute(SHOW_ALL_FREE)
        with psycopg.connect(url) as gate:
            gate.execute("lock table slots in access exclusive mode")
            whole = replace(create(client, None), gpus=8)
            losing = asyncio.create_task(create_all(client.context, client.catalogue, [whole]))
            await async_wait_for(lambda: len(rows_of(url, WAITING)) == 1, "the create to correct the fit")
            changing = asyncio.create_task(rival(client, held))
            await async_wait_for(lambda: changing.done() or len(rows_of(url, WAITING)) == 2, "the rival to wait or end")
            gate.rollback()
        (lost,) = await losing
        assert status_of(lost) == 409
        return await changing

    status = as_client(url, seeded, scene)
    with connect(url) as connection:
        return status, check_fit(connection, Bounds()).violations


def test_a_slot_freed_while_a_refused_create_corrects_the_fit_is_shown_free(database_url: str) -> None:
    assert race_with(database_url, cancel_one) == (200, [])


def test_a_slot_taken_while_a_refused_create_corrects_the_fit_is_shown_taken(database_url: str) -> None:
    assert race_with(database_url, create_one) == (201, [])
