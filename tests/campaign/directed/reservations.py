"""Scenes with reservations. Each is the shortest way to where one bug shows; without the bug all is well."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.exc import DBAPIError

from berth.client import Reservation
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.commands import Question, ask_operation
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import OperationFenced
from orchestrator.reservations.commands.consume import Consume, consume_reservation
from orchestrator.reservations.commands.expire import expire_reservation
from orchestrator.reservations.commands.start import start_reservation
from orchestrator.reservations.hold_requests import GpuRequest
from orchestrator.reservations.store.confirming import Confirm
from orchestrator.reservations.store.holding import Hold
from orchestrator.reservations.store.turn_over import Start
from tests.allocations.driving import TENANT, operation, release
from tests.allocations.seeding import IMAGE, REGION, SLICE_SKU, Seeded, connect
from tests.campaign.clients.reading import hold_sight_of
from tests.campaign.directed.scene import Scene
from tests.campaign.history import Outcome, WriteKind
from tests.campaign.history import Question as KeyQuestion
from tests.reservations.holding import confirm_alone, hold_alone
from tests.support.rival_sessions import until_waiting
from tests.support.waiting import async_wait_for, wait_past
from tests.testbuild.planting import rewritten_function

SEAT = "seat-0"
HOLDER = "holder"
LATE_SECONDS = 0.5
WINDOW_SECONDS = 1.5


def see_hold(scene: Scene, reservation_id: UUID) -> None:
    """A client reads the reservation now."""
    asked = time.monotonic()
    with connect(scene.url) as connection:
        row = connection.execute(
            "select reservation_body(r, null, null, null) from reservations r where id = %s", (reservation_id,)
        ).fetchone()
    assert row is not None
    scene.history.holds.append(hold_sight_of(Reservation.model_validate(row[0]), asked))


def a_sweep_before_the_deadline(scene: Scene) -> None:
    """The sweeper runs while a hold has 15 minutes left."""
    seeded = _with_seat(scene)

    async def play(context: Context) -> None:
        reservation_id = await _hold(scene, context, seeded, ttl_seconds=900)
        for _ in range(20):
            await expire_reservation(context, reservation_id)
        see_hold(scene, reservation_id)

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
                confirm_alone(context, Confirm(asked, seeded.tenant_id, reservation_id, HOLDER))
            )
            await until_waiting(scene.url)
            await _until_it_is_late(scene.url, reservation_id)
            holding.execute("commit")
            _note(scene, "confirm", asked.key, await confirming, reservation_id)

    scene.run(play)


def a_window_that_begins_before_the_last_one_is_over(scene: Scene) -> None:
    """A planted bug hides an overlap from a hold: its window begins half a second before the end of an earlier one, which
    has been turned over. Only the constraint prevents the double booking.
    """
    seeded = scene.seed()
    with connect(scene.url) as connection:
        connection.execute(_OVERLAP_IS_CONTAINMENT.encode())

    async def play(context: Context) -> None:
        slot, change = f"slot:{seeded.nodes[0].id}:0", datetime.now(UTC) + timedelta(seconds=WINDOW_SECONDS)
        early = change - timedelta(seconds=0.5)
        earlier = await _window(scene, context, seeded, slot, None, change)
        later = await _window(scene, context, seeded, slot, early, change + timedelta(hours=1))
        running = await _take(scene, context, seeded, earlier)
        await scene.provision(context, running)
        if later is not None:
            await wait_past(early)
            await _take(scene, context, seeded, later)
        await release(context, seeded, running)
        await scene.clean_up(context, running)

    scene.run(play)


def a_turn_over_while_the_last_one_overruns(scene: Scene) -> None:
    """Of two consecutive windows the first overruns; a planted bug hides that from the turn-over of the second, which
    regards the units as free. Only the constraint prevents the double occupation.
    """
    seeded = scene.seed()
    with connect(scene.url) as connection:
        connection.execute(_NOBODY_IS_EVER_THERE.encode())

    async def play(context: Context) -> None:
        slot, change = f"slot:{seeded.nodes[0].id}:0", datetime.now(UTC) + timedelta(seconds=WINDOW_SECONDS)
        earlier = await _window(scene, context, seeded, slot, None, change)
        later = await _window(scene, context, seeded, slot, change, change + timedelta(hours=1))
        running = await _take(scene, context, seeded, earlier)
        await scene.provision(context, running)
        await wait_past(change)
        coming = None
        with suppress(DBAPIError):
            coming = await _take(scene, context, seeded, later)
        if coming is not None:
            await scene.provision(context, coming)
        await release_at_end(context, running)
        await scene.clean_up(context, running)

    scene.run(play)


def a_start_before_its_time(scene: Scene) -> None:
    """The sweeper runs while a confirmed reservation is to start in an hour."""
    seeded = scene.seed()

    async def play(context: Context) -> None:
        template: dict[str, Any] = {
            "image": None,
            "ssh_key_ids": [str(seeded.ssh_key_id)],
            "name": None,
            "labels": {},
            "user_data": None,
        }
        asked, later = operation(seeded), datetime.now(UTC) + timedelta(hours=1)
        hold = Hold(asked, seeded.tenant_id, HOLDER, later, None, 900, template, None, uuid4())
        catalogue = CatalogueCache(context.database, 0.0)
        wanted = GpuRequest(SLICE_SKU, 1, REGION, 1, IMAGE, True)
        answer = await hold_alone(context, catalogue, hold, wanted)
        reservation_id = UUID(json.loads(answer.body)["reservation_id"])
        _note(scene, "hold", asked.key, answer, reservation_id)
        await _confirm(scene, context, seeded, reservation_id)
        await start_reservation(context, catalogue, reservation_id)

    scene.run(play)


def a_write_that_comes_after_the_question(scene: Scene) -> None:
    """A client has lost patience and asks for its key; only then its request arrives."""
    seeded = _with_seat(scene)

    async def play(context: Context) -> None:
        asked, at = operation(seeded), time.monotonic()
        told = await ask_operation(context, Question(asked.scope, asked.key, seeded.tenant_id))
        scene.history.questions.append(KeyQuestion(asked.key, "hold", at, time.monotonic(), told.state))
        try:
            await _try_hold(scene, context, seeded, (SEAT,), 900, None, None, asked)
        except OperationFenced:
            scene.write("hold", asked.key, asked.key, Outcome.FENCED)

    scene.run(play)


# What a careless hand could make of the two looks that come before the constraints.
_OVERLAP_IS_CONTAINMENT = rewritten_function("rivals_for", ("c.during && p_window", "c.during @> p_window"))
_NOBODY_IS_EVER_THERE = rewritten_function(
    "turn_over_claim",
    ("busy := exists (select from claims o where", "busy := exists (select from claims o where false and"),
)


async def _window(
    scene: Scene, context: Context, seeded: Seeded, name: str, starts_at: datetime | None, ends_at: datetime
) -> UUID | None:
    """A confirmed window, if it is had."""
    reservation_id = await _try_hold(scene, context, seeded, (name,), 900, starts_at, ends_at)
    if reservation_id is not None:
        await _confirm(scene, context, seeded, reservation_id)
    return reservation_id


async def _confirm(scene: Scene, context: Context, seeded: Seeded, reservation_id: UUID) -> None:
    asked = operation(seeded)
    answer = await confirm_alone(context, Confirm(asked, seeded.tenant_id, reservation_id, HOLDER))
    _note(scene, "confirm", asked.key, answer, reservation_id)


async def _take(scene: Scene, context: Context, seeded: Seeded, reservation_id: UUID | None) -> UUID:
    """The allocation that it becomes, as its client sees it."""
    assert reservation_id is not None, "a window without rivals is granted"
    asked = operation(seeded)
    start = Start(asked.key, asked.fingerprint, None, uuid4(), (seeded.ssh_key_id,), None, {}, None)
    wanted = Consume(reservation_id, HOLDER, SLICE_SKU, None, start)
    catalogue = CatalogueCache(context.database, 0.0)
    answer = await consume_reservation(context, catalogue, asked, TENANT, seeded.tenant_id, wanted)
    allocation_id = UUID(json.loads(answer.body)["allocation_id"])
    scene.told("take", asked.key, asked.key, answer, allocation_id, reservation_id)
    scene.look(allocation_id)
    return allocation_id


def _with_seat(scene: Scene) -> Seeded:
    seeded = scene.seed()
    with connect(scene.url) as connection:
        connection.execute("select setval('unit_numbers', 1000000)")
        connection.execute("insert into resources (id) values (%s)", (SEAT,))
    return seeded


async def _hold(scene: Scene, context: Context, seeded: Seeded, ttl_seconds: float) -> UUID:
    reservation_id = await _try_hold(scene, context, seeded, (SEAT,), ttl_seconds, None, None)
    assert reservation_id is not None, "there is no rival"
    return reservation_id


async def _try_hold(
    scene: Scene, context: Context, seeded: Seeded, names: tuple[str, ...], ttl_seconds: float,
    starts_at: datetime | None, ends_at: datetime | None, asked: Operation | None = None,
) -> UUID | None:  # fmt: skip
    asked = asked or operation(seeded)
    hold = Hold(asked, seeded.tenant_id, HOLDER, starts_at, ends_at, ttl_seconds, None, None, uuid4())
    began = time.monotonic()
    answer = await hold_alone(context, CatalogueCache(context.database, 0.0), hold, names)
    found = json.loads(answer.body).get("reservation_id")
    reservation_id = None if found is None else UUID(found)
    _note(scene, "hold", asked.key, answer, reservation_id, began)
    return reservation_id


def _note(
    scene: Scene, kind: WriteKind, key: str, answer: Answer, reservation_id: UUID | None, began: float | None = None
) -> None:
    """Record a response in the history."""
    scene.told(kind, key, key, answer, reservation_id=reservation_id)
    if answer.status < 400:
        told = Reservation.model_validate_json(answer.body)
        scene.history.holds.append(hold_sight_of(told, time.monotonic() if began is None else began))


async def _until_it_is_late(url: str, reservation_id: UUID) -> None:
    """Wait until the hold's deadline is half a second ago."""
    late = "select from reservations where id = %s and hold_until < clock_timestamp() - make_interval(secs => %s)"
    with connect(url) as connection:
        await async_wait_for(
            lambda: connection.execute(late, (reservation_id, LATE_SECONDS)).fetchone() is not None,
            "the hold to be overdue",
        )
