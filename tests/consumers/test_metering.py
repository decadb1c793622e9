"""Metering of complete lifecycles: killed, replayed, duplicated, restarted at every event; exact to the unit."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.client import Event
from berth.local.servers import LocalPostgres
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.operations.execution import Context, Limits
from orchestrator.verification.billing import check_billing
from orchestrator.verification.verdict import Bounds
from tests.allocations.driving import NOT_WIPED, clean_up, completed, provision, release, report, run_with, task_of
from tests.allocations.seeding import PRICE, Seeded, create_allocation, seed
from tests.consumers.metered import meter_all, metered_to
from tests.databases import copied_database
from worker.metering.log_source import LogSource

RECOMPUTED = """
select a.id::text, a.gpus, p.price_micro_per_gpu_second, a.active_at, coalesce(a.releasing_at, a.failed_at)
from allocations a join sku_prices p on p.sku = a.sku and p.price_version = a.price_version
where a.active_at is not null order by a.id
"""


def fill(url: str) -> Seeded:
    """Lifecycles of every kind, with the log sequenced at random places; prices change while they run."""
    seeded = seed(url, slice_nodes=3, metal_nodes=1)
    own = {n: create_allocation(url, seeded, name=n, gpus=g) for n, g in (("whole", 2), ("open", 4), ("failed", 1))}
    own |= {n: create_allocation(url, seeded, name=n) for n in ("never", "stuck", "cancelled")}

    async def live(context: Context) -> None:
        for name in ("whole", "open", "failed", "stuck"):
            await provision(context, url, own[name])
        await release(context, seeded, own["cancelled"])
        await clean_up(context, url, own["cancelled"])
        await release(context, seeded, own["whole"])
        await clean_up(context, url, own["whole"])
        await release(context, seeded, own["stuck"])
        await begin_release(context, own["stuck"], "stuck")
        task = task_of(url, own["stuck"])
        await report(context, task, completed(task, NOT_WIPED))
        await finish_release(context, own["stuck"], "stuck")  # release_failed: bills nothing more
        await release(context, seeded, own["stuck"])  # ordered again: neither

    run_with(url, live, limits=Limits(release_attempts_max=1))
    with psycopg.connect(url, autocommit=True) as database:
        # What no transition of ours does, and the source knows: lost while it was active.
        database.execute("alter table allocations disable trigger all")
        database.execute(
            "update allocations set state = 'failed', failed_at = clock_timestamp(), failure_code = 'node_lost',"
            " waits_for = null, waits_since = null, waits_until = null where id = %s",
            (own["failed"],),
        )
        database.execute(
            "insert into outbox (event_type, correlation_id, tenant_id, subject, payload) select 'provisioning.failed',"
            " correlation_id, tenant_id, 'allocations/' || id, jsonb_build_object('allocation_id', id, 'failed_at',"
            """ rfc3339(failed_at)) from allocations where id = %s""",
            (own["failed"],),
        )
        database.execute("alter table allocations enable trigger all")
        database.execute(
            "update skus set price_micro_per_gpu_second = 5, price_version = 2 where name in (select sku from allocations)"
        )
        database.execute("select log_advance(100000)")
    return seeded


@pytest.fixture(scope="module")
def filled(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """The name of a database with such lifecycles, and nothing metered."""
    with copied_database(postgres_server, migrated_template) as url:
        fill(url)
        yield url.rpartition("/")[2]


@pytest.fixture
def url(postgres_server: LocalPostgres, filled: str) -> Iterator[str]:
    """A copy of it for one test."""
    with copied_database(postgres_server, filled) as copied:
        yield copied


def recomputed(url: str) -> list[tuple[str, int]]:
    """What each closed interval costs, from the allocations alone, by other arithmetic than the database's."""
    with psycopg.connect(url) as database:
        found = []
        for allocation_id, gpus, price, since, until in database.execute(RECOMPUTED).fetchall():
            if until is not None:
                delta = until - since
                microseconds = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
                found.append((allocation_id, int(Fraction(gpus * price * microseconds, 1_000_000))))
        return found


def inexact(url: str, lines: list[tuple[Any, ...]]) -> list[str]:
    """What `berth verify` finds wrong in the billing, once the ledger is what the allocations cost."""
    assert [(line[0], int(line[8])) for line in lines] == recomputed(url)
    with psycopg.connect(url) as database:
        return check_billing(database, Bounds()).violations


def test_the_ledger_is_what_the_allocations_cost(url: str) -> None:
    lines = meter_all(url)
    assert inexact(url, lines) == []
    assert len(lines) == 3
    assert all(line[4] == PRICE and line[3] == 1 for line in lines), "at the price of its creation"
    assert all(line[8] > 0 for line in lines)
    with psycopg.connect(url) as database:
        row = database.execute("select count(*) from metering_intervals where ended_at is null").fetchone()
    assert row == (1,)


def test_metered_again_from_the_beginning_it_is_the_same(url: str) -> None:
    lines = meter_all(url)
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("update consumer_positions set version = 0 where consumer = 'metering'")
    assert meter_all(url, batch_max=1) == lines


class OneByOne:
    """The log, one event at a time, each delivered twice; after each, what is metered must be exact up to it."""

    def __init__(self, context: Context, url: str, judged: list[int]) -> None:
        self._source = LogSource(context, 0.01)
        self._url, self._judged = url, judged

    async def event_lists(self, after: int) -> AsyncGenerator[list[Event], None]:
        """Requesting the next list proves that the one before is committed."""
        with psycopg.connect(self._url, autocommit=True) as database:
            async for events in self._source.event_lists(after):
                for event in events:
                    for _ in range(2):
                        yield [event]
                    assert metered_to(database) == event.version
                    assert check_billing(database, Bounds()).violations == []
                    self._judged.append(event.version)


def test_at_every_event_boundary_it_is_exact_as_far_as_it_goes(url: str) -> None:
    """Ledger and balances are what the allocations cost up to each event, not only at the end."""
    judged: list[int] = []
    lines = meter_all(url, source_of=lambda context: OneByOne(context, url, judged))
    with psycopg.connect(url) as database:
        row = database.execute("select version from log_head").fetchone()
    assert row is not None
    # The run ends with its last event.
    assert judged == list(range(1, judged[-1] + 1))
    assert judged[-1] >= row[0] - 1
    assert inexact(url, lines) == []


class Twice:
    """The log, with events repeated from random places, and whole lists repeated."""

    def __init__(self, context: Context, seed: int) -> None:
        self._source = LogSource(context, 0.01)
        self._random = random.Random(seed)

    async def event_lists(self, after: int) -> AsyncGenerator[list[Event], None]:
        """In pieces."""
        async for events in self._source.event_lists(max(0, after - self._random.randrange(20))):
            told = 0
            while told < len(events):
                size = self._random.randint(1, 5)
                start = max(0, told - self._random.randrange(8))
                yield events[start : told + size]
                yield events[start : told + size]
                told += size


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 7), stops=st.lists(st.integers(1, 40), max_size=3))
def test_delivered_twice_and_restarted_anywhere_it_is_the_same(
    postgres_server: LocalPostgres, filled: str, seed: int, batch: int, stops: list[int]
) -> None:
    with copied_database(postgres_server, filled) as url:
        for stop in stops:
            with psycopg.connect(url, autocommit=True) as database:
                database.execute(
                    "update consumer_positions set version = %s where consumer = 'metering' and version > %s",
                    (stop, stop),
                )
            meter_all(url, batch_max=batch, source_of=lambda context: Twice(context, seed))
        assert inexact(url, meter_all(url, batch_max=batch, source_of=lambda context: Twice(context, seed))) == []


# Long; the quicker test: test_delivered_twice_and_restarted_anywhere_it_is_the_same.
@pytest.mark.full
@pytest.mark.parametrize("each", [1, 3])
def test_killed_before_in_and_after_every_transaction_it_is_the_same(url: str, each: int) -> None:
    """SIGKILL at one boundary, or each, of each event, in turn, until everything is metered."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.consumers.killed", url, str(each)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    deaths, metered = (int(word) for word in done.stdout.split())
    assert deaths >= each * metered > 4
    assert inexact(url, meter_all(url)) == []


def _refused(url: str, statement: str) -> str | None:
    with psycopg.connect(url) as database, pytest.raises(psycopg.Error) as raised:
        database.execute(statement.encode())
    return raised.value.sqlstate


@pytest.mark.parametrize(
    "statement",
    [
        "update ledger set amount_micro_units = 0", "delete from ledger", "truncate ledger",
        "update sku_prices set price_micro_per_gpu_second = 1", "delete from sku_prices where price_version = 2",
        "delete from metering_intervals", "update metering_intervals set gpus = 9 where ended_at is null",
        "update metering_intervals set ended_at = null, closed_version = null where ended_at is not null",
    ],
)  # fmt: skip
def test_what_was_billed_is_never_changed(metered: str, statement: str) -> None:
    assert _refused(metered, statement) == "BB002"


@pytest.fixture(scope="module")
def metered(postgres_server: LocalPostgres, filled: str) -> Iterator[str]:
    """A copy of it that was metered."""
    with copied_database(postgres_server, filled) as copied:
        meter_all(copied)
        yield copied


PARTS = st.integers(0, 10**13)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gpus=st.integers(1, 4_096), price=st.integers(0, 10**15), whole=st.integers(0, 10**14),
    cuts=st.lists(st.integers(0, 10**14), max_size=5),
)  # fmt: skip
def test_parts_add_up_and_nothing_is_rounded_up(
    metered: str, gpus: int, price: int, whole: int, cuts: list[int]
) -> None:
    places = sorted({0, whole, *(min(cut, whole) for cut in cuts)})
    with psycopg.connect(metered) as database:
        costs = [
            int(row[0])
            for row in database.execute(
                "select metered_micro_units(%s, %s, timestamptz '2026-01-01', timestamptz '2026-01-01' + "
                "p * interval '1 microsecond') from unnest(%s::bigint[]) p",
                (gpus, price, places),
            )
        ]
    assert costs == [gpus * price * place // 1_000_000 for place in places]
    assert sum(b - a for a, b in itertools.pairwise(costs)) == costs[-1]
