"""Balances against a model that only adds and multiplies: payments, intervals that open and close, looks, in any order.

Settled, accruing and available equal the model's to the unit; each crossing emits one event and decides which creates
are refused.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.types.json import Jsonb

from berth.local.servers import LocalPostgres
from orchestrator.billing.commands import evaluate_balance
from orchestrator.billing.queries import find_balance
from orchestrator.billing.rules import AMOUNT_MAX, BalanceSnapshot
from orchestrator.operations.execution import Context
from tests.allocations.driving import provision, run_with
from tests.allocations.seeding import SLICE_SKU, Seeded, add_tenant, create_allocation, make_context, seed
from tests.billing.payments import make_prepaid, top_up, withdraw
from tests.databases import copied_database

PRICES = [0, 1, 7, 999_999, 1_234_567, 10**9]
COPY = """
insert into allocations select (jsonb_populate_record(a, %s)).* from allocations a where a.name = 'pattern'
"""
RELEASE = (
    "update allocations set state = 'releasing', releasing_at = clock_timestamp() where id = %s returning releasing_at"
)


@dataclass
class Interval:
    """What runs or ran, as the model knows it. `metered`: whether it has its line."""

    gpus: int
    price: int
    active_at: datetime
    ended_at: datetime | None = None
    metered: bool = False

    def cost(self, at: datetime) -> int:
        """Micro-units up to an instant, or to its end."""
        delta = max(timedelta(0), (self.ended_at or at) - self.active_at)
        return int(Fraction(self.gpus * self.price * (delta // timedelta(microseconds=1)), 1_000_000))


@dataclass
class Model:
    """The balance, by addition."""

    paid: int = 0
    prepaid: bool = False
    threshold: int | None = None
    low: bool = False
    depleted: bool = False
    told: list[str] = field(default_factory=list)
    intervals: dict[uuid.UUID, Interval] = field(default_factory=dict)

    def settled(self) -> int:
        """What the ledger adds up to."""
        return self.paid - sum(one.cost(one.active_at) for one in self.intervals.values() if one.metered)

    def accruing(self, at: datetime) -> int:
        """What has no line yet."""
        return sum(one.cost(at) for one in self.intervals.values() if not one.metered)

    def look(self, at: datetime) -> None:
        """Evaluate the balance at this instant."""
        available = self.settled() - self.accruing(at)
        low = self.prepaid and self.threshold is not None and available < self.threshold
        depleted = self.prepaid and available <= 0
        self.told += ["low"] * (low and not self.low) + ["depleted"] * (depleted and not self.depleted)
        self.low, self.depleted = low, depleted


class Place:
    """A database with a pattern of an active allocation, and what every example needs of it."""

    def __init__(self, url: str, seeded: Seeded) -> None:
        self.url, self.seeded = url, seeded
        self.versions = itertools.count(1)
        self.database = psycopg.connect(url, autocommit=True)
        self.runner = asyncio.Runner()
        self.context: Context = self.runner.run(self._open())

    async def _open(self) -> Context:
        return make_context(self.url, pool_size=2)

    def run(self, work: Any) -> Any:
        """In the one loop."""
        return self.runner.run(work)

    def close(self) -> None:
        """Let go of everything."""
        self.runner.run(self.context.database.close())
        self.runner.close()
        self.database.close()


@pytest.fixture(scope="module")
def place(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[Place]:
    """Allocations are copied from one that was made and provisioned; what moves them here is the test."""
    with copied_database(postgres_server, migrated_template) as url:
        seeded = seed(url)
        pattern = create_allocation(url, seeded, name="pattern")
        run_with(url, lambda context: provision(context, url, pattern))
        with psycopg.connect(url, autocommit=True) as database:
            database.execute("alter table allocations disable trigger all")
            for index in database.execute(
                "select conname from pg_constraint where conrelid = 'allocations'::regclass and contype in ('c', 'f', 'u')"
            ).fetchall():
                database.execute(f"alter table allocations drop constraint {index[0]}".encode())
            for number, price in enumerate(PRICES, start=2):
                database.execute("insert into sku_prices values (%s, %s, %s)", (SLICE_SKU, number, price))
        found = Place(url, seeded)
        yield found
        found.close()


class Balances(RuleBasedStateMachine):
    """One new tenant per example."""

    place: Place
    stories = 0

    @initialize()
    def begin(self) -> None:
        self.tenant_id = add_tenant(self.place.database, uuid.uuid4().hex).tenant_id
        self.model = Model()
        type(self).stories += 1

    def _looked_at(self) -> datetime:
        row = self.place.database.execute(
            "select looked_at from balances where tenant_id = %s", (self.tenant_id,)
        ).fetchone()
        assert row is not None
        assert row[0] is not None
        at: datetime = row[0]
        return at.astimezone(UTC)

    @rule(amount=st.integers(1, 10**13), near=st.sampled_from([None, -1, 0, 1]))
    def give(self, amount: int, near: int | None) -> None:
        """Any amount, or one that leaves hardly anything above nothing or the threshold at the time."""
        if near is not None:
            wanted = (self.model.threshold or 0) + near
            amount = max(
                1, min(wanted - (self.model.settled() - self.model.accruing(datetime.now(UTC))), AMOUNT_MAX // 8)
            )
        answer = self.place.run(top_up(self.place.context, self.tenant_id, amount))
        if abs(self.model.settled() + amount) > AMOUNT_MAX:
            assert answer.status == 409
            return
        assert answer.status == 201
        self.model.paid += amount
        self.model.look(self._looked_at())

    @rule(amount=st.integers(1, 10**13))
    def take(self, amount: int) -> None:
        answer = self.place.run(withdraw(self.place.context, self.tenant_id, amount))
        if abs(self.model.settled() - amount) > AMOUNT_MAX:
            assert answer.status == 409
            return
        self.model.paid -= amount
        self.model.look(self._looked_at())

    @rule(prepaid=st.booleans(), threshold=st.none() | st.integers(0, 10**13))
    def decide(self, prepaid: bool, threshold: int | None) -> None:
        """No quota is used here, so no create is refused for quota."""
        self.place.run(make_prepaid(self.place.context, self.tenant_id, threshold, prepaid))
        self.model.prepaid, self.model.threshold = prepaid, threshold
        self.model.look(self._looked_at())

    @rule(
        gpus=st.integers(1, 8),
        price=st.integers(2, len(PRICES) + 1),
        ago=st.timedeltas(timedelta(0), timedelta(days=9)),
    )
    def open(self, gpus: int, price: int, ago: timedelta) -> None:
        """An allocation that became active then, as metering takes note of it."""
        allocation_id, active_at = uuid.uuid4(), datetime.now(UTC) - ago
        record = {
            "id": str(allocation_id), "tenant_id": str(self.tenant_id), "name": None, "active_at": active_at.isoformat(),
            "operation_key": uuid.uuid4().hex, "sku": SLICE_SKU, "gpus": gpus, "price_version": price,
        }  # fmt: skip
        self.place.database.execute(COPY, (Jsonb(record),))
        opening = {
            **record,
            "allocation_id": str(allocation_id),
            "at": record["active_at"],
            "version": next(self.place.versions),
        }
        for _ in range(2):  # delivered twice
            self.place.database.execute("select meter(%s, '[]')", (Jsonb([opening]),))
        self.model.intervals[allocation_id] = Interval(gpus, PRICES[price - 2], active_at)

    @precondition(lambda self: any(one.ended_at is None for one in self.model.intervals.values()))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """It is released; metering has not come to that yet."""
        running = sorted(name for name, one in self.model.intervals.items() if one.ended_at is None)
        chosen = data.draw(st.sampled_from(running), label="ends")
        row = self.place.database.execute(RELEASE, (chosen,)).fetchone()
        assert row is not None
        self.model.intervals[chosen].ended_at = row[0].astimezone(UTC)

    @precondition(lambda self: any(one.ended_at and not one.metered for one in self.model.intervals.values()))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """Metering receives the end of an interval twice."""
        ended = sorted(name for name, one in self.model.intervals.items() if one.ended_at and not one.metered)
        chosen = data.draw(st.sampled_from(ended), label="is metered")
        interval = self.model.intervals[chosen]
        assert interval.ended_at is not None
        closing = {
            "allocation_id": str(chosen), "at": interval.ended_at.isoformat(), "version": next(self.place.versions),
        }  # fmt: skip
        for _ in range(2):
            self.place.database.execute("select meter('[]', %s)", (Jsonb([closing]),))
        interval.metered = True

    @rule()
    def look(self) -> None:
        self.place.run(evaluate_balance(self.place.context, self.tenant_id))
        self.model.look(self._looked_at())

    @invariant()
    def the_balance_is_the_models(self) -> None:
        found: BalanceSnapshot = self.place.run(find_balance(self.place.context.database, self.tenant_id))
        at = found.at.astimezone(UTC)
        running = [one for one in self.model.intervals.values() if one.ended_at is None]
        assert (found.settled, found.accruing) == (self.model.settled(), self.model.accruing(at))
        assert found.available == found.settled - found.accruing
        assert (found.running, found.rate) == (len(running), sum(one.gpus * one.price for one in running))
        assert (found.low_told_at is not None, found.depleted_at is not None) == (self.model.low, self.model.depleted)
        told = self.place.database.execute(
            "select event_type from outbox where tenant_id = %s and event_type like 'balance.%%' order by id",
            (self.tenant_id,),
        ).fetchall()
        assert [row[0].removeprefix("balance.") for row in told] == self.model.told

    @invariant()
    def whoever_may_have_sunk_is_looked_at_in_time(self) -> None:
        """Prepaid and running: it is due before it can have come to nothing, whatever happened since it was looked at."""
        row = self.place.database.execute(
            "select look_at, clock_timestamp() from balances where tenant_id = %s", (self.tenant_id,)
        ).fetchone()
        assert row is not None
        look_at, now = row
        running = any(one.ended_at is None for one in self.model.intervals.values())
        if not self.model.prepaid:
            assert look_at is None
        elif running:
            assert look_at is not None
            if not self.model.depleted and look_at > now:
                available = self.model.settled() - self.model.accruing(
                    look_at.astimezone(UTC) - timedelta(milliseconds=1)
                )
                assert available > 0


@pytest.mark.parametrize("examples", [12, pytest.param(150, marks=pytest.mark.full)])
def test_a_balance_is_what_a_model_says_to_the_unit(place: Place, examples: int) -> None:
    class Here(Balances):
        pass

    Here.place = place
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, derandomize=examples < 100,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    assert Here.stories >= examples
