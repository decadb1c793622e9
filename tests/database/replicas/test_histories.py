"""Writes and reads beside a replay that pauses and resumes, in any order: no read is staler than it demands.

Hypothesis chooses the order. Two clients each demand what they have seen last, so no event that they saw goes missing.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.response_versions import ResponseVersion
from orchestrator.database.transactions import Reading
from tests.at_length import at_length
from tests.database.replicas.pairs import Pair, Reader, address_of, reading

CLIENTS = st.sampled_from(["first", "second"])
HELD = "select version, (select count(*) from log where version > :start) as events from log_head"


class Histories(RuleBasedStateMachine):
    """`newest`: the version of the last event written. `seen`: the version that each client saw last."""

    pair: Pair

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.held: AbstractAsyncContextManager[Reader] | None = None
        self.from_standby = 0

    @initialize()
    def begin(self) -> None:
        """A process whose standby is fit."""
        self.start = self.newest = self.pair.add_event()
        self.seen = {"first": 0, "second": 0}
        self.paused = False
        self.pair.catch_up()
        self.held = reading(address_of(self.pair.a), address_of(self.pair.b, standby=True), wait_seconds=0.02)
        self.reader = self.runner.run(self.held.__aenter__())
        self.runner.run(self.reader.wait_fit())

    @rule(events=st.integers(1, 3))
    def write(self, events: int) -> None:
        """Events of writes."""
        for _ in range(events):
            self.newest = self.pair.add_event()

    @rule()
    def pause(self) -> None:
        """The standby replays nothing."""
        self.pair.pause()

    @rule()
    def resume(self) -> None:
        """It replays again."""
        self.pair.resume()

    @rule()
    def resume_and_catch_up(self) -> None:
        """It has everything."""
        self.pair.resume()
        self.pair.catch_up()

    @rule()
    def examine(self) -> None:
        """A round of the watch."""
        self.runner.run(self.reader.watch.examine())

    @rule()
    def lose(self) -> None:
        """A connection to the primary is lost."""
        self.reader.replica.distrust()

    def _read(self, asked: ResponseVersion) -> tuple[int, int]:
        """The version that the response carries, and how many events of this history it shows."""

        async def read(found: Reading) -> tuple[int, int]:
            row = (await found.execute(HELD, {"start": self.start})).one()
            self.from_standby += found.replayed is not None
            return row.version, row.events

        head, events = self.runner.run(read_replicated(self.reader.database.for_request(asked), read))
        assert asked.version is not None
        assert asked.version <= head, "the response has what its version says"
        return asked.version, events

    @rule(client=CLIENTS)
    def read_on(self, client: str) -> None:
        """A client demands what it has seen."""
        version, events = self._read(ResponseVersion(at_least=self.seen[client], is_stated=True))
        assert version >= self.seen[client]
        assert events >= version - self.start
        self.seen[client] = version

    @rule(client=CLIENTS)
    def read_the_newest(self, client: str) -> None:
        """A client demands what was written last."""
        version, events = self._read(ResponseVersion(at_least=self.newest, is_stated=True))
        assert (version, events) == (self.newest, self.newest - self.start)
        self.seen[client] = version

    @rule(client=CLIENTS)
    def read_without_a_version(self, client: str) -> None:
        """A client demands nothing, and gets everything that was written before."""
        version, events = self._read(ResponseVersion())
        assert (version, events) == (self.newest, self.newest - self.start)
        self.seen[client] = version

    @invariant()
    def nobody_saw_what_is_not_written(self) -> None:
        """No version is ahead of the primary's."""
        if self.held is not None:
            assert max(self.seen.values()) <= self.newest

    def teardown(self) -> None:
        """The replay runs, and the process ends."""
        if self.held is not None:
            self.pair.resume()
            self.runner.run(self.held.__aexit__(None, None, None))
        self.runner.close()


@pytest.mark.parametrize("examples", at_length([40, 4], [4]))
def test_no_history_has_a_read_that_is_staler_than_demanded(pair: Pair, examples: int) -> None:
    served: list[int] = []

    class OverThePair(Histories):
        """On the servers of this module."""

        def teardown(self) -> None:
            """Count, then end."""
            served.append(self.from_standby)
            super().teardown()

    OverThePair.pair = pair
    run_state_machine_as_test(
        OverThePair,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert sum(served) > 0, "the standby served some"
