"""Scenes with metering, payments and prepaid balances. Each is the shortest way to where one bug shows."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

import psycopg

from berth.process import crash_points
from orchestrator.billing.commands import evaluate_balance, release_for_billing
from orchestrator.crash_points import CrashPoint
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import release, rows_of
from tests.allocations.seeding import Seeded, connect, create_allocation, try_create
from tests.billing.payments import make_prepaid, top_up
from tests.campaign.accounts import Books
from tests.campaign.clients.accounts.settling import read_ledger
from tests.campaign.directed.scene import Scene, deliveries_of_log
from tests.campaign.history import Outcome
from tests.consumers.metered import meter_all
from tests.support.rival_sessions import until_waiting

NEARLY_NOTHING = 1
PLENTY = 10**12
OWNER = "scene"


class Died(Exception):
    """The process of a scene died at a crash point."""


def metering_that_dies_before_its_commit(scene: Scene) -> None:
    """Metering dies when its lines are written and not committed; another process continues from the stored position."""
    seeded = scene.seed()
    _rent(scene, seeded)
    crash_points.install(_die)
    try:
        with suppress(Died):
            meter_all(scene.url)
    finally:
        crash_points.install(None)
    _read(scene, seeded)


def _die(label: str) -> None:
    if label == CrashPoint.METERING_BEFORE_COMMIT:
        raise Died(label)


def events_that_are_metered_again(scene: Scene) -> None:
    """Metering has lost its position and reads the log from its beginning."""
    seeded = scene.seed()
    _rent(scene, seeded)
    meter_all(scene.url)
    with connect(scene.url) as connection:
        connection.execute("delete from consumer_positions where consumer = 'metering'")
    _read(scene, seeded)


def one_payment_twice_at_once(scene: Scene) -> None:
    """Two top-ups with one key arrive together, as when a client loses patience: both have begun when one ends."""
    seeded = scene.seed()

    async def play(context: Context) -> None:
        async def send() -> Answer:
            return await top_up(context, seeded.tenant_id, PLENTY, "one-payment")

        with connect(scene.url) as rival:
            rival.execute("begin")
            rival.execute("lock table balances in exclusive mode")
            sending = asyncio.gather(send(), send())
            await until_waiting(scene.url, 2)
            rival.execute("commit")
            answers = await sending
        for answer in answers:
            _paid(scene, seeded, "one-payment", PLENTY, answer)

    scene.run(play)
    _read(scene, seeded)


def a_payment_before_the_release(scene: Scene) -> None:
    """A balance is depleted and topped up before billing releases what ran."""
    seeded = scene.seed()
    allocation_id = _deplete(scene, seeded)

    async def play(context: Context) -> None:
        _paid(scene, seeded, "enough", PLENTY, await top_up(context, seeded.tenant_id, PLENTY, "enough"))
        await release_for_billing(context, allocation_id)
        await release(context, seeded, allocation_id)
        await scene.clean_up(context, allocation_id)

    scene.run(play)
    _read(scene, seeded)


def a_create_after_the_depletion(scene: Scene) -> None:
    """A tenant whose balance is depleted sends a create."""
    seeded = scene.seed()
    allocation_id = _deplete(scene, seeded)
    scene.sequence()
    # The client knows from the stream that nothing is left.
    scene.history.deliveries += deliveries_of_log(scene.url)
    with connect(scene.url) as connection:
        made = try_create(connection, seeded, key="too-late")
    scene.write("create", "too-late", "too-late", Outcome.DONE if made else Outcome.REFUSED, "answer", made)

    async def play(context: Context) -> None:
        await release(context, seeded, allocation_id)
        await scene.clean_up(context, allocation_id)

    scene.run(play)
    _read(scene, seeded)


def _rent(scene: Scene, seeded: Seeded) -> None:
    """An allocation from its create to its end."""
    allocation_id = create_allocation(scene.url, seeded, gpus=2)

    async def play(context: Context) -> None:
        await scene.provision(context, allocation_id)
        await release(context, seeded, allocation_id)
        await scene.clean_up(context, allocation_id)

    scene.run(play)


def _deplete(scene: Scene, seeded: Seeded) -> uuid.UUID:
    """An active allocation of a prepaid tenant that has nothing left."""
    scene.history.accounts.prepaid.add(seeded.tenant_id)
    scene.history.accounts.owners[OWNER] = seeded.tenant_id

    async def pay(context: Context) -> None:
        answer = await top_up(context, seeded.tenant_id, NEARLY_NOTHING, "nearly-nothing")
        _paid(scene, seeded, "nearly-nothing", NEARLY_NOTHING, answer)
        await make_prepaid(context, seeded.tenant_id)

    scene.run(pay)
    allocation_id = create_allocation(scene.url, seeded, gpus=2)
    scene.run(lambda context: scene.provision(context, allocation_id))
    meter_all(scene.url)
    scene.run(lambda context: evaluate_balance(context, seeded.tenant_id))
    return allocation_id


def _paid(scene: Scene, seeded: Seeded, key: str, amount: int, answer: Answer) -> None:
    scene.told("top_up", key, f"top_up {seeded.tenant_id} {amount}", answer)


_PRICES = "select sku, price_version, price_micro_per_gpu_second from sku_prices"
_SETTLED = "select settled_micro_units from balances where tenant_id = %s"


def _read(scene: Scene, seeded: Seeded) -> None:
    """Meter what is left, and record the books."""
    meter_all(scene.url)
    accounts = scene.history.accounts
    accounts.prices = {(sku, version): price for sku, version, price in rows_of(scene.url, _PRICES)}
    books = accounts.books = Books(read_ledger(scene.url))
    with psycopg.connect(scene.url) as connection:
        row = connection.execute(_SETTLED, (seeded.tenant_id,)).fetchone()
    books.settled[seeded.tenant_id] = int(row[0]) if row else 0
