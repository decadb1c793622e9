"""What an answer of a standby contains, how long a read on it may take, and how long a round that connects to it."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.database.replicas import replica, watch
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.replicas.rules import Cause
from orchestrator.database.response_versions import ResponseVersion
from orchestrator.database.transactions import Reading
from tests.database.replicas.pairs import (
    PENDING_EVENT,
    SOURCE,
    Pair,
    address_of,
    fallbacks,
    in_process,
    reader_of,
    reading,
    run,
)


def test_an_answer_has_the_effects_of_its_version_and_maybe_not_of_commits_without_one(pair: Pair) -> None:
    """The primary shows a commit at once, under the version that it had before; a standby whose replay is paused does not."""
    run(pair.a, "create table effects (name text)")
    run(pair.a, "grant select on effects to public")

    async def scene() -> list[tuple[bool, int | None, set[str]]]:
        async with reader_of(pair) as reader:

            async def answer(at_least: int | None) -> tuple[bool, int | None, set[str]]:
                asked = ResponseVersion(at_least=at_least or 0, is_stated=at_least is not None)

                async def read(reading: Reading) -> tuple[bool, set[str]]:
                    on_standby = (await reading.execute(SOURCE)).one().on_standby
                    return on_standby, set((await reading.execute("select name from effects")).scalars())

                on_standby, names = await read_replicated(reader.database.for_request(asked), read)
                return on_standby, asked.version, names

            run(pair.a, "insert into effects values ('sequenced')")
            version = pair.add_event()
            pair.catch_up()
            pair.pause()
            try:
                run(pair.a, f"begin; insert into effects values ('no version yet'); {PENDING_EVENT}; commit")
                found = [await answer(None), await answer(version)]
                run(pair.a, "select log_advance(1000)")
                return [*found, await answer(version + 1)]
            finally:
                pair.resume()

    before, on_standby, after = in_process(scene)
    version = on_standby[1]
    assert version is not None
    assert before == (False, version, {"sequenced", "no version yet"}), "the version of the standby's answer, and more"
    assert on_standby == (True, version, {"sequenced"})
    assert after == (False, version + 1, {"sequenced", "no version yet"}), (
        "its event has a version now, which was demanded"
    )


def test_a_read_whose_statements_take_too_long_together_is_run_by_the_primary(pair: Pair) -> None:
    """Each of them is within its bound: here they do not end, for as long as the standby serves them."""

    async def scene() -> tuple[list[bool], float]:
        async with reader_of(pair) as reader:
            sources: list[bool] = []

            async def read(reading: Reading) -> None:
                while True:
                    on_standby = (await reading.execute(SOURCE)).one().on_standby
                    if not on_standby or not sources:
                        sources.append(on_standby)
                    if not on_standby:
                        return

            before = fallbacks(Cause.SLOW)
            asked = ResponseVersion(at_least=0, is_stated=True)
            async with asyncio.timeout(30):
                await read_replicated(reader.database.for_request(asked), read)
            await reader.watch.examine()
            assert (await reader.read(0))[0], "a slow read says nothing about the standby"
            return sources, fallbacks(Cause.SLOW) - before

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica, "READ_SECONDS_MAX", 0.2)
        sources, slow = in_process(scene)
    assert (sources, slow) == ([True, False], 1)


def test_a_round_whose_connections_take_long_leaves_the_others_to_the_next(pair: Pair) -> None:
    """Each may meet a frozen server first: all of them in one round would keep the healthy one from being compared."""

    async def scene() -> list[int]:
        async with reading(address_of(pair.a), address_of(pair.b, standby=True), size=3) as reader:
            sizes = []
            for _ in range(5):
                await reader.watch.examine()
                sizes.append(reader.replica.size)
            return sizes

    pair.catch_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "CONNECT_SECONDS_OF_ROUND", 0.0)
        assert in_process(scene) == [0, 1, 2, 3, 3], "the first is for the comparison"
