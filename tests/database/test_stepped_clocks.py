"""A failover to a server with another clock: no process uses it until its clock can be trusted, so no hold ends early (P5).

And nothing is dated before what the earlier primary dated.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.process.server_clocks import STEP_SECONDS_MAX, ClockReading, Remembered, judge_clock
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Database
from orchestrator.problems import DatabaseUnavailable, OutcomeUnknown
from outbox_relay.problems import ServerUnavailable
from outbox_relay.reading import LogReader
from tests.at_length import at_length
from tests.support.failover.cluster import Cluster, pools, running_cluster
from tests.support.waiting import async_wait_for
from tests.testbuild.interposing import Interposed, build_library, can_interpose

needs_compiler = pytest.mark.skipif(
    not can_interpose(), reason="no C compiler is installed: no clock can be made wrong"
)
WALL = 1_000_000.0
"""How far the wall clock of the simulated process is ahead of its monotonic one."""


@contextmanager
def failing_over(directory: Path, offset_seconds: int) -> Iterator[tuple[Cluster, Interposed]]:
    """Three servers; the clocks of the two standbys are wrong by so much."""
    place = directory / f"cluster-{uuid.uuid4().hex[:8]}"
    place.mkdir(mode=0o755)
    clock = Interposed(build_library(place), place / "control")
    clock.set_clock(offset_seconds)
    with running_cluster(place, clock.environment) as cluster:
        cluster.a.wait_for_commits_of(cluster.b, cluster.c)
        yield cluster, clock


async def time_at(database: Database) -> datetime:
    """The clock that evaluates deadlines; raises `DatabaseUnavailable` like every command."""
    async with database.transaction() as tx:
        return await read_clock(tx)


async def time_after(database: Database) -> datetime:
    """As soon as a server is used."""
    found: list[datetime] = []

    async def answers() -> bool:
        try:
            found.append(await time_at(database))
        except (DatabaseUnavailable, OutcomeUnknown):
            return False
        return True

    await async_wait_for(answers, "a server is used")
    return found[0]


@pytest.fixture
def place(server_directory: Path) -> Path:
    """Where the servers of a test have their data; every user may pass through it."""
    server_directory.chmod(0o755)
    return server_directory


@needs_compiler
def test_a_new_primary_whose_clock_is_ahead_evaluates_no_deadline(place: Path) -> None:
    async def scene(cluster: Cluster, clock: Interposed) -> None:
        database, anew = pools(cluster.url), pools(cluster.url)
        before = await time_at(database)
        await asyncio.to_thread(cluster.fail_over, cluster.a.kill)
        refused = 0
        while refused < 20:
            # Of a process that knew the earlier primary, of one that did not, and of a relay.
            for pool in (database, anew):
                with pytest.raises((DatabaseUnavailable, OutcomeUnknown)):
                    await time_at(pool)
            with pytest.raises(ServerUnavailable):
                async with LogReader.connected(cluster.url):
                    pass
            refused += 1
        clock.set_clock(0)
        after = await time_after(database)
        assert timedelta(0) < after - before < timedelta(minutes=10), "the hour never passed"
        assert await time_after(anew) > before
        for pool in (database, anew):
            await pool.close()

    with failing_over(place, 3600) as (cluster, clock):
        asyncio.run(scene(cluster, clock))


@pytest.mark.full
@needs_compiler
@pytest.mark.parametrize("offset_seconds", at_length([-1, -4], [-4]))
def test_nothing_is_dated_before_what_the_earlier_primary_dated(place: Path, offset_seconds: int) -> None:
    async def scene(cluster: Cluster) -> tuple[datetime, datetime]:
        database = pools(cluster.url)
        before = await time_at(database)
        await asyncio.to_thread(cluster.fail_over, cluster.a.kill)
        after = await time_after(database)
        await database.close()
        return before, after

    with failing_over(place, offset_seconds) as (cluster, _):
        before, after = asyncio.run(scene(cluster))
        assert after > before


def reading(at: float, ahead: float, before: float = 0.001, after: float = 0.001) -> ClockReading:
    """A server's clock that is so far ahead of the wall clock, asked at this moment."""
    return ClockReading(at + before + WALL + ahead, at, at + before + after)


def test_a_server_that_steps_forward_is_refused_until_either_clock_explains_it() -> None:
    known = judge_clock(None, 1, reading(0, 0), WALL).remembered
    assert judge_clock(known, 1, reading(10, 1.5), WALL).ahead == pytest.approx(1.5, abs=0.01)
    assert judge_clock(known, 2, reading(10, 1.5), WALL).ahead == pytest.approx(1.5, abs=0.01)
    assert judge_clock(known, 2, reading(10, 1.5), WALL).remembered == known
    assert not judge_clock(known, 2, reading(10, 0.9), WALL).ahead, "within what is allowed"
    assert not judge_clock(known, 2, reading(10, 1.5), WALL + 1.5).ahead, "the wall clock was repaired as well"
    assert not judge_clock(known, 2, reading(10, 0), WALL - 3600).ahead, "this process's own wall clock stepped"
    assert judge_clock(None, 1, reading(0, 3600), WALL).ahead == pytest.approx(3600, abs=0.01)


def test_a_new_primary_that_is_behind_is_refused_until_it_has_passed_the_earlier_one() -> None:
    known = judge_clock(None, 1, reading(0, 0), WALL).remembered
    found = judge_clock(known, 2, reading(10, -30), WALL)
    assert found.behind == pytest.approx(30, abs=0.01)
    for at, behind in ((20, 20), (39.5, 0.5), (41, 0)):
        found = judge_clock(found.remembered, 2, reading(at, -30), WALL)
        assert found.behind == pytest.approx(behind, abs=0.01)
    assert not judge_clock(found.remembered, 2, reading(52, -3600), WALL - 3600).behind, (
        "the same server set its clock back"
    )
    again = judge_clock(found.remembered, 2, reading(52, -3600), WALL).remembered
    assert not judge_clock(again, 2, reading(60, -3600), WALL).ahead, "and goes on from there"
    assert judge_clock(again, 3, reading(70, -3700), WALL).behind == pytest.approx(100, abs=0.01)
    assert judge_clock(None, 1, reading(0, -5), WALL).behind == pytest.approx(5, abs=0.01)


def test_a_reading_that_took_long_replaces_no_precise_one_of_the_same_server() -> None:
    known = judge_clock(None, 1, reading(0, 0), WALL).remembered
    assert known is not None
    after = judge_clock(known, 1, reading(10, 0, before=4.0), WALL).remembered
    assert after is not None
    assert after.reading == known.reading
    assert judge_clock(after, 1, reading(20, 0.2), WALL).remembered != known
    # Of another server it is all that is known.
    second = judge_clock(known, 2, reading(10, 0.9, before=0.2), WALL).remembered
    assert judge_clock(second, 3, reading(20, 0.0), WALL).behind == pytest.approx(1.1, abs=0.01)


VAGUE_SECONDS = 0.6
MOMENTS = st.floats(0, VAGUE_SECONDS / 2)
OFFSETS = st.floats(-5, 5)
FAILOVERS = st.lists(st.tuples(st.booleans(), st.floats(0, 20), OFFSETS, MOMENTS, MOMENTS), max_size=12)


@settings(max_examples=300)
@given(FAILOVERS)
def test_whatever_the_clocks_of_the_primaries_time_never_goes_back(
    connections: list[tuple[bool, float, float, float, float]],
) -> None:
    """Each is: is there another primary, how long after, its clock, and how long the question took there and back."""
    now, timeline, ahead, dated = 0.0, 1, 0.0, 0.0
    memory: Remembered | None = judge_clock(None, timeline, reading(now, ahead), WALL).remembered
    accepted = ahead
    for another, pause, offset, there, back in connections:
        now += pause
        if another:
            timeline, ahead = timeline + 1, offset
        asked = reading(now, ahead, there, back)
        found = judge_clock(memory, timeline, asked, WALL)
        memory = found.remembered
        now += there + back
        if found.ahead or found.behind > STEP_SECONDS_MAX:
            assert max(abs(ahead - accepted), abs(ahead)) > STEP_SECONDS_MAX - VAGUE_SECONDS, "not without a step"
            continue
        assert ahead <= max(accepted, 0.0) + STEP_SECONDS_MAX + VAGUE_SECONDS, "no clock that is an hour ahead"
        now += found.behind
        assert WALL + now + ahead >= dated - 1e-6, "nothing is dated before what was dated"
        dated, accepted = WALL + now + ahead, ahead
