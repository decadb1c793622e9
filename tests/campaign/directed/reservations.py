"""Scenes with reservations. Each is the shortest way to where one bug shows; without the bug all is well."""

from __future__ import annotations

import asyncio
import json
import time
from uuid import UUID, uuid4

from berth.client import Reservation
from orchestrator.catalogue_cache import CatalogueCache
from orchestrator.commands.confirm_reservation import confirm_reservation
from orchestrator.commands.expire_reservation import expire_reservation
from orchestrator.commands.hold_resources import hold_resources
from orchestrator.execution import Context
from orchestrator.store.holding import Hold
from orchestrator.store.operations import Answer
from tests.campaign.directed.database import _until_a_lock_is_waited_for
from tests.campaign.directed.scene import Scene
from tests.campaign.history import WriteKind
from tests.campaign.writing import hold_sight_of
from tests.lifecycle.driving import TENANT, operation
from tests.lifecycle.seeding import Seeded, connect

SEAT = "seat-0"
HOLDER = "somebody"
LATE_SECONDS = 0.5


def a_sweep_before_the_deadline(scene: Scene) -> None:
    """A sweeper comes to a hold that has a quarter of an hour left."""
    seeded = _with_seat(scene)

    async def play(context: Context) -> None:
        reservation_id = await _hold(scene, context, seeded, ttl_seconds=900)
        for _ in range(20):
            await expire_reservation(context, reservation_id)
        asked = time.monotonic()
        with connect(scene.url) as connection:
            row = connection.execute(
                "select reservation_body(r, null, null, null) from reservations r where id = %s", (reservation_id,)
            ).fetchone()
        assert row is not None
        scene.history.holds.append(hold_sight_of(Reservation.model_validate(row[0]), asked))

    scene.run(play)


def a_confirm_behind_a_lock(scene: Scene) -> None:
    """A confirm in time waits for a lock until the deadline has passed."""
    seeded = _with_seat(scene)

    async def play(context: Context) -> None:
        reservation_id = await _hold(scene, context, seeded, ttl_seconds=1)
        with connect(scene.url) as holding:
            holding.execute("begin")
            holding.execute("select from reservations where id = %s for update", (reservation_id,))
            asked = operation(seeded)
            confirming = asyncio.create_task(
                confirm_reservation(context, asked, TENANT, seeded.tenant_id, reservation_id, HOLDER)
            )
            await _until_a_lock_is_waited_for(scene.url)
            await _until_it_is_late(scene.url, reservation_id)
            holding.execute("commit")
            _note(scene, "confirm", asked.key, await confirming, reservation_id)

    scene.run(play)


def _with_seat(scene: Scene) -> Seeded:
    seeded = scene.seed()
    with connect(scene.url) as connection:
        connection.execute("select setval('unit_numbers', 1000000)")
        connection.execute("insert into resources (id) values (%s)", (SEAT,))
    return seeded


async def _hold(scene: Scene, context: Context, seeded: Seeded, ttl_seconds: float) -> UUID:
    asked = operation(seeded)
    hold = Hold(asked, seeded.tenant_id, HOLDER, None, None, ttl_seconds, None, None, uuid4())
    began = time.monotonic()
    answer = await hold_resources(context, CatalogueCache(context.database, 0.0), hold, (SEAT,))
    reservation_id = UUID(json.loads(answer.body)["reservation_id"])
    _note(scene, "hold", asked.key, answer, reservation_id, began)
    return reservation_id


def _note(
    scene: Scene, kind: WriteKind, key: str, answer: Answer, reservation_id: UUID, began: float | None = None
) -> None:
    """What a client was told."""
    scene.told(kind, key, key, answer, reservation_id=reservation_id)
    if answer.status < 400:
        told = Reservation.model_validate_json(answer.body)
        scene.history.holds.append(hold_sight_of(told, time.monotonic() if began is None else began))


async def _until_it_is_late(url: str, reservation_id: UUID) -> None:
    """Wait until the hold's deadline is half a second ago."""
    with connect(url) as connection:
        async with asyncio.timeout(20):
            while (
                connection.execute(
                    "select from reservations where id = %s"
                    " and hold_until < clock_timestamp() - make_interval(secs => %s)",
                    (reservation_id, LATE_SECONDS),
                ).fetchone()
                is None
            ):
                await asyncio.sleep(0.02)
