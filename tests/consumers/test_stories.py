"""The consumer over sources that tell twice, out of their place, or not at all, with crashes between: once each, or a gap."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from berth.client import Event, EventStubbed, LogGap, PositionLost
from berth.client.consumer_positions import Connection
from berth.local.servers import LocalPostgres
from tests.consumers.effects import Scripted, consumer_of, effects, event, position, prepare, run_until, writing
from tests.databases import copied_database


@pytest.fixture(scope="module")
def own(postgres_server: LocalPostgres) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A database that is the consumer's alone: nothing of Berth is in it."""
    with copied_database(postgres_server, "template1") as url, psycopg.connect(url, autocommit=True) as database:
        prepare(url)
        yield url, database


class Died(Exception):
    """The handler's process ended here."""


Own = tuple[str, psycopg.Connection[Any]]
LAST = 24
VERSIONS = st.integers(1, LAST)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(VERSIONS, min_size=1, max_size=8), back=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 9), min_size=1), batch=st.integers(1, 9),
    deaths=st.lists(st.tuples(VERSIONS, st.booleans()), max_size=4), sparse=st.booleans(),
)  # fmt: skip
def test_each_event_takes_effect_once_whatever_is_delivered_twice_and_whenever_it_dies(
    own: Own,
    steps: list[int],
    back: list[int],
    sizes: list[int],
    batch: int,
    deaths: list[tuple[int, bool]],
    sparse: bool,
) -> None:
    """`sparse`: a tenant's chain, in which versions are missing and none is missed."""
    url, database = own
    name = uuid.uuid4().hex
    chain = list(range(1, LAST + 1, 3 if sparse else 1))
    told = [event(v, p) for p, v in zip([0, *chain], chain, strict=False)]
    tries = iter(back)
    waiting = list(deaths)

    def tell(after: int) -> list[list[Event]]:
        """From a little before the requested position, in pieces, each repeated after the next."""
        start = max(0, after - next(tries, 0))
        wanted = [e for e in told if e.version > start]
        pieces: list[list[Event]] = []
        while wanted:
            size = sizes[len(pieces) % len(sizes)]
            pieces.append(wanted[:size])
            pieces += pieces[-2:-1] if len(pieces) > 1 else []
            wanted = wanted[size:]
        return pieces

    async def handle(transaction: Connection, events: Sequence[Event]) -> None:
        if waiting and any(e.version >= waiting[0][0] for e in events):
            _, late = waiting.pop(0)
            if late:
                await writing(name)(transaction, events)
            raise Died
        await writing(name)(transaction, events)

    for _ in range(len(deaths) + 1):
        try:
            asyncio.run(
                run_until(
                    consumer_of(url, name, Scripted(tell), handle=handle, batch_max=batch),
                    lambda: position(database, name) == chain[-1],
                )
            )
        except Died:
            done = effects(database, name)
            assert done == chain[: len(done)]
            assert position(database, name) == (done[-1] if done else 0)
    assert effects(database, name) == chain


def test_a_gap_is_asked_for_again_and_never_skipped(own: Own) -> None:
    url, database = own
    lost = Scripted(lambda after: [[event(v) for v in (1, 2, 3, 6, 7) if v > after]])
    with pytest.raises(LogGap) as raised:
        asyncio.run(run_until(consumer_of(url, "gap", lost, batch_max=3), lambda: False))
    assert (raised.value.code, raised.value.extra) == ("log_gap", {"after": 3, "prev_version": 5})
    assert (effects(database, "gap"), position(database, "gap"), lost.asked) == ([1, 2, 3], 3, [0, 3])
    tellings = iter([(1, 2, 3, 6, 7), range(1, 9)])
    healed = Scripted(lambda after: [[event(v) for v in next(tellings)]])
    asyncio.run(run_until(consumer_of(url, "gap", healed), lambda: position(database, "gap") == 8))
    assert effects(database, "gap") == list(range(1, 9))


def test_events_without_a_chain_are_taken_for_a_gap(own: Own) -> None:
    url, _ = own
    unchained = [Event(**{**_members(event(v)), "prev_version": None}) for v in (1, 2)]
    with pytest.raises(LogGap):
        asyncio.run(run_until(consumer_of(url, "unchained", Scripted(lambda _: [unchained])), lambda: False))


def _members(one: Event) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Event.__slots__}


def test_what_is_not_asked_for_moves_the_position_all_the_same(own: Own) -> None:
    url, database = own
    source = Scripted(lambda _: [[event(v, event_type="wanted" if v % 4 == 0 else "other") for v in range(1, 11)]])
    consumer = consumer_of(url, "some", source, event_types=frozenset({"wanted"}), begin_after=2)
    asyncio.run(run_until(consumer, lambda: position(database, "some") == 10))
    assert effects(database, "some") == [4, 8]
    assert consumer.position == 10


def test_two_under_one_name_do_the_work_once(own: Own) -> None:
    url, database = own

    async def both() -> None:
        def source() -> Scripted:
            return Scripted(lambda after: [[event(v)] for v in range(after + 1, 81)])

        def done() -> bool:
            return position(database, "two") == 80

        await asyncio.gather(*(run_until(consumer_of(url, "two", source()), done) for _ in range(2)))

    asyncio.run(both())
    assert effects(database, "two") == list(range(1, 81))


def test_a_database_that_cuts_the_connection_is_asked_again(own: Own) -> None:
    url, database = own
    cut: list[int] = []

    async def handle(transaction: Connection, events: Sequence[Event]) -> None:
        await writing("cut")(transaction, events)
        if events[-1].version in (3, 5) and events[-1].version not in cut:
            cut.append(events[-1].version)
            database.execute("select pg_terminate_backend(%s)", (transaction.info.backend_pid,))

    source = Scripted(lambda after: [[event(v)] for v in range(after + 1, 9)])
    consumer = consumer_of(url, "cut", source, handle=handle)
    asyncio.run(run_until(consumer, lambda: position(database, "cut") == 8))
    assert (effects(database, "cut"), cut, source.asked) == (list(range(1, 9)), [3, 5], [0, 2, 4])


def test_a_stub_stops_it_before_anything_is_lost(own: Own) -> None:
    url, database = own
    events = [event(1), event(2, is_stub=True, data={"stub": True, "reason": "too_large"}), event(3)]
    with pytest.raises(EventStubbed) as raised:
        asyncio.run(run_until(consumer_of(url, "stub", Scripted(lambda _: [[e] for e in events])), lambda: False))
    assert (raised.value.extra, effects(database, "stub"), position(database, "stub")) == ({"version": 2}, [1], 1)
    passing = consumer_of(url, "stub", Scripted(lambda _: [events]), event_types=frozenset({"another"}))
    asyncio.run(run_until(passing, lambda: position(database, "stub") == 3))


@pytest.mark.parametrize("change", ["delete from {}", "update {} set version = 1"])
def test_a_position_that_goes_back_is_reported(own: Own, change: str) -> None:
    url, database = own
    name = f"taken {change[:6]}"

    def tell(after: int) -> Iterator[list[Event]]:
        yield [event(v) for v in (1, 2, 3)]
        database.execute(f"{change.format('berth_consumer_positions')} where consumer = '{name}'".encode())
        yield [event(4)]

    with pytest.raises(PositionLost):
        asyncio.run(asyncio.wait_for(run_until(consumer_of(url, name, Scripted(tell)), lambda: False), 30))
    assert effects(database, name) == [1, 2, 3]
