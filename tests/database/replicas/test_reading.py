"""Reads on a real standby: served where it has what they demand, by the primary in every other case."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.replicas.rules import Cause
from orchestrator.database.response_versions import ResponseVersion
from orchestrator.database.transactions import Reading
from orchestrator.problems import DatabaseUnavailable, NotFound
from tests.database.replicas.pairs import (
    SOURCE,
    Pair,
    fallbacks,
    heads_asked,
    impatient,
    in_process,
    reader_of,
    run,
    written,
)
from tests.support.waiting import async_wait_for


def test_a_read_that_states_a_version_is_served_by_the_standby(pair: Pair) -> None:
    version = pair.add_event()

    async def scene() -> list[tuple[bool, int, int | None]]:
        async with reader_of(pair) as reader:
            return [await reader.read(version), await reader.read(0), await reader.read()]

    assert in_process(scene) == [(True, version, version), (True, version, version), (False, version, version)]


def test_the_primary_serves_a_version_that_the_standby_does_not_reach(pair: Pair) -> None:
    async def scene() -> None:
        async with reader_of(pair) as reader:
            behind = pair.add_event()
            pair.catch_up()
            pair.pause()
            try:
                newest = pair.add_event()
                assert await reader.read(behind) == (True, behind, behind)
                before = fallbacks(Cause.BEHIND)
                for _ in range(3):
                    assert await reader.read(newest) == (False, newest, newest)
                assert fallbacks(Cause.BEHIND) == before + 3
                assert await reader.read(behind) == (True, behind, behind), "others are served meanwhile"
            finally:
                pair.resume()
            pair.catch_up()
            await reader.watch.examine()
            assert await reader.read(newest) == (True, newest, newest)

    in_process(scene)


def test_after_one_wait_in_vain_the_others_ask_the_standby_once(pair: Pair) -> None:
    async def scene() -> tuple[int, int]:
        async with reader_of(pair, wait_seconds=0.5) as reader:
            pair.pause()
            try:
                newest = pair.add_event()
                with heads_asked() as asked:
                    await reader.read(newest)
                    first = len(asked)
                    await reader.read(newest)
                    return first, len(asked)
            finally:
                pair.resume()

    first, both = in_process(scene)
    assert first > 1, "it waited, and asked more than once"
    assert both == first + 1


def test_a_version_that_the_standby_reaches_in_time_is_waited_for(pair: Pair) -> None:
    async def scene() -> None:
        async with reader_of(pair, wait_seconds=60.0, lag_seconds=600.0) as reader:
            pair.pause()
            try:
                newest = pair.add_event()
                await reader.watch.examine()  # what was found before is old on a busy machine
                with heads_asked() as asked:
                    waiting = asyncio.create_task(reader.read(newest))
                    await async_wait_for(lambda: len(asked) > 1 or waiting.done(), "the standby was asked again")
                assert not waiting.done(), "the standby was asked again, and has not replayed it"
            finally:
                pair.resume()
            assert await waiting == (True, newest, newest)

    in_process(scene)


def test_a_standby_that_lags_beyond_the_bound_serves_nothing(pair: Pair) -> None:
    """Its bound is of what the primary had committed, so a silent primary makes no standby stale."""

    async def scene() -> None:
        async with reader_of(pair, lag_seconds=3.0) as reader:
            pair.pause()
            try:
                version = pair.add_event() - 1
                history = reader.watch._history
                for _ in range(3):
                    await reader.watch.examine()
                assert (await reader.read(version))[0], "as long as it is not known to be so late"
                stale = [old for old in history if old.written < written(pair.a)]
                for old in stale:
                    history.remove(old)
                await reader.watch.examine()
                before = fallbacks(Cause.LAGGING)
                assert (await reader.read(version))[0] is False
                assert fallbacks(Cause.LAGGING) == before + 1
            finally:
                pair.resume()
            pair.catch_up()
            await reader.watch.examine()
            assert (await reader.read(version))[0]

    in_process(scene)


def test_a_statement_that_the_replay_cancels_is_run_by_the_primary(pair: Pair) -> None:
    """SQLSTATE 40001: the standby removes rows that the snapshot of the read still sees."""
    run(pair.a, "create table conflicting as select n from generate_series(1, 100) n")
    run(pair.a, "grant select on conflicting to public")

    async def scene() -> tuple[list[bool], float]:
        async with reader_of(pair) as reader:
            sources: list[bool] = []

            async def read(reading: Reading) -> int:
                sources.append((await reading.execute(SOURCE)).one().on_standby)
                first: int = (await reading.execute("select count(*) from conflicting")).scalar_one()
                if len(sources) == 1:
                    run(pair.a, "delete from conflicting")
                    run(pair.a, "vacuum conflicting")
                    pair.catch_up()
                second: int = (await reading.execute("select count(*) from conflicting")).scalar_one()
                assert first == second, "a snapshot does not change"
                return second

            before = fallbacks(Cause.CONFLICT)
            asked = ResponseVersion(at_least=0, is_stated=True)
            assert await read_replicated(reader.database.for_request(asked), read) == 0
            assert (await reader.read(0))[0], "the standby serves the next one"
            return sources, fallbacks(Cause.CONFLICT) - before

    with impatient(pair.b):
        sources, conflicts = in_process(scene)
    assert sources == [True, False]
    assert conflicts == 1


def test_a_statement_that_takes_too_long_on_the_standby_is_run_by_the_primary(pair: Pair) -> None:
    async def scene() -> tuple[list[bool], float]:
        async with reader_of(pair) as reader:
            sources: list[bool] = []

            async def read(reading: Reading) -> None:
                on_standby = (await reading.execute(SOURCE)).one().on_standby
                sources.append(on_standby)
                if on_standby:
                    await reading.execute("select pg_sleep(60)")

            before = fallbacks(Cause.SLOW)
            asked = ResponseVersion(at_least=0, is_stated=True)
            await read_replicated(reader.database.for_request(asked), read)
            assert (await reader.read(0))[0], "a slow statement says nothing about the standby"
            return sources, fallbacks(Cause.SLOW) - before

    sources, slow = in_process(scene)
    assert sources == [True, False]
    assert slow == 1


def test_a_refusal_is_the_primarys(pair: Pair) -> None:
    """What is not on the standby yet may be on the primary."""

    async def scene() -> list[bool]:
        async with reader_of(pair) as reader:
            sources: list[bool] = []

            async def read(reading: Reading) -> None:
                sources.append((await reading.execute(SOURCE)).one().on_standby)
                raise NotFound("there is no such thing")

            asked = ResponseVersion(at_least=0, is_stated=True)
            with pytest.raises(NotFound):
                await read_replicated(reader.database.for_request(asked), read)
            return sources

    assert in_process(scene) == [True, False]


def test_a_standby_whose_leader_has_changed_since_it_was_examined_serves_nothing(pair: Pair) -> None:
    leader = run(pair.a, "select leader_id from log_head")[0][0]

    async def scene() -> tuple[bool, float]:
        async with reader_of(pair) as reader:
            run(pair.a, "update log_head set leader_id = 'another'")
            try:
                pair.catch_up()
                before = fallbacks(Cause.OTHER_LEADER)
                return (await reader.read(0))[0], fallbacks(Cause.OTHER_LEADER) - before
            finally:
                run(pair.a, f"update log_head set leader_id = '{leader}'")

    assert in_process(scene) == (False, 1)


def test_a_standby_serves_no_longer_than_it_was_found_fit_for(pair: Pair) -> None:
    """Nothing was compared since: the primary may not have been reached."""

    async def scene() -> list[bool]:
        async with reader_of(pair) as reader:
            (standby,) = reader.replica.standbys.values()
            assert standby.fit is not None
            standby.fit = replace(standby.fit, until=time.monotonic())
            sources = [(await reader.read(0))[0]]
            await reader.watch.examine()
            return [*sources, (await reader.read(0))[0]]

    assert in_process(scene) == [False, True]


def test_a_round_that_began_before_a_loss_trusts_nothing(pair: Pair) -> None:
    """What it has read of the primary may be of one that leads no longer."""

    async def scene() -> list[bool]:
        async with reader_of(pair) as reader:
            round_of_the_watch = asyncio.create_task(reader.watch.examine())
            asyncio.get_running_loop().call_soon(reader.replica.distrust)  # after the first step of the round
            await round_of_the_watch
            sources = [(await reader.read(0))[0]]
            await reader.watch.examine()
            return [*sources, (await reader.read(0))[0]]

    assert in_process(scene) == [False, True]


def test_more_reads_than_connections_are_served_by_both(pair: Pair) -> None:
    async def scene() -> list[bool]:
        async with reader_of(pair, size=1) as reader:
            running, go = asyncio.Event(), asyncio.Event()

            async def read(reading: Reading) -> bool:
                on_standby: bool = (await reading.execute(SOURCE)).one().on_standby
                if on_standby:
                    running.set()
                    await go.wait()
                return on_standby

            asked = ResponseVersion(at_least=0, is_stated=True)
            held = asyncio.create_task(read_replicated(reader.database.for_request(asked), read))
            await running.wait()
            other = (await reader.read(0))[0]
            go.set()
            return [await held, other, (await reader.read(0))[0]]

    assert in_process(scene) == [True, False, True]


def test_a_read_that_is_cancelled_leaves_the_others_their_connections(pair: Pair) -> None:
    async def scene() -> bool:
        async with reader_of(pair, size=1) as reader:
            running = asyncio.Event()

            async def read(reading: Reading) -> None:
                running.set()
                await reading.execute("select pg_sleep(60)")

            asked = ResponseVersion(at_least=0, is_stated=True)
            held = asyncio.create_task(read_replicated(reader.database.for_request(asked), read))
            await running.wait()
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
            await reader.watch.examine()
            return (await reader.read(0))[0]

    assert in_process(scene)


def test_nothing_is_written_on_a_standby(pair: Pair) -> None:
    """A read that would write fails there, and the primary refuses it as well: the transaction is read-only."""

    async def scene() -> None:
        async with reader_of(pair) as reader:
            asked = ResponseVersion(at_least=0, is_stated=True)
            with pytest.raises(DatabaseUnavailable):
                await read_replicated(
                    reader.database.for_request(asked), lambda reading: reading.execute("select nextval('fences')")
                )

    in_process(scene)
