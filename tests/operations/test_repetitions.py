"""Identical requests without a key: those that wait for a transaction share it, and none gets an answer older than itself."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from orchestrator.edge.repetitions import Repetitions
from orchestrator.operations.store.operations import Answer, Operation, Repetition
from orchestrator.problems import Overloaded, Problem
from tests.support.waiting import let_others_run

TENANT, KEY = uuid.uuid4(), uuid.uuid4()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await let_others_run()


class Requests:
    """Identical requests for one object, which runs one of them at a time; counts its runs."""

    def __init__(self) -> None:
        self.repetitions = Repetitions()
        self.runs = 0
        self.go = asyncio.Event()
        self.failures: list[BaseException] = []
        self.leaders: list[str] = []
        self.effects: set[int] = set()
        self._turn = asyncio.Lock()

    async def run(self) -> Answer:
        """The answer says which run it is of."""
        self.runs += 1
        run = self.runs
        await self.go.wait()
        await settle()
        if self.failures:
            raise self.failures.pop(0)
        return Answer(202, f'{{"result": "{"ok" if run in self.effects else "noop"}", "run": {run}}}')

    async def send(self, scope: uuid.UUID = TENANT, principal: uuid.UUID = KEY, content: bytes = b"a") -> int:
        """One request; returns the run that answered it. Raises what its run raises."""
        async with asyncio.timeout(10):
            operation = Operation(scope, f"auto:{uuid.uuid4()}", content * 32, 60.0, key_is_ours=True, ending=True)
            held = False

            async def take_turn() -> None:
                nonlocal held
                await self._turn.acquire()
                held = True

            repetition = Repetition(principal, take_turn, self.leaders.append)
            try:
                repeated = replace(operation, repetition=repetition)
                answer = await self.repetitions.answer(repeated, repetition, self.run)
                return int(json.loads(answer.body)["run"])
            finally:
                if held:
                    self._turn.release()

    def start(self, count: int) -> list[asyncio.Task[int]]:
        """So many requests at once."""
        return [asyncio.create_task(self.send()) for _ in range(count)]


def play(scene: Callable[[Requests], Awaitable[None]]) -> None:
    """Run the scene; no entry may be left."""

    async def whole() -> None:
        requests = Requests()
        await scene(requests)
        assert not len(requests.repetitions)

    asyncio.run(whole())


def test_those_that_wait_share_the_next_transaction() -> None:
    """Not the one that runs: what it answers may have been decided before they arrived."""

    async def scene(requests: Requests) -> None:
        (first,) = requests.start(1)
        await settle()
        waiting = requests.start(200)
        await settle()
        assert requests.runs == 1
        requests.go.set()
        assert await first == 1
        assert set(await asyncio.gather(*waiting)) == {2}
        assert (requests.runs, len(requests.leaders), len(set(requests.leaders))) == (2, 199, 1)

    play(scene)


@pytest.mark.parametrize("failure", [Overloaded("full"), Problem("odd"), RuntimeError("unforeseen")])
def test_a_run_that_fails_fails_its_own_request_alone(failure: BaseException) -> None:
    async def scene(requests: Requests) -> None:
        blocking = asyncio.create_task(requests.send(content=b"b"))
        await settle()
        requests.failures = [RuntimeError("the one before"), failure]
        waiting = requests.start(10)
        await settle()
        requests.go.set()
        with pytest.raises(RuntimeError):
            await blocking
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [one for one in ended if isinstance(one, BaseException)] == [failure]
        assert sorted(one for one in ended if isinstance(one, int)) == [3, *[4] * 8]

    play(scene)


def test_a_leader_that_is_cancelled_while_it_waits_leaves_the_others_another_one() -> None:
    async def scene(requests: Requests) -> None:
        (first,) = requests.start(1)
        await settle()
        leader, *others = requests.start(5)
        await settle()
        leader.cancel()
        await settle()
        requests.go.set()
        await first
        assert await asyncio.gather(*others) == [2] * 4
        assert leader.cancelled()

    play(scene)


def test_only_identical_requests_of_one_principal_share() -> None:
    async def scene(requests: Requests) -> None:
        (first,) = requests.start(1)
        await settle()
        different = [
            requests.send(),
            requests.send(),
            requests.send(scope=uuid.uuid4()),
            requests.send(principal=uuid.uuid4()),
            requests.send(content=b"b"),
        ]
        tasks = [asyncio.create_task(one) for one in different]
        await settle()
        requests.go.set()
        await first
        assert await asyncio.gather(*tasks) == [2, 2, 3, 4, 5]

    play(scene)


def test_only_the_request_that_had_the_effect_reports_it() -> None:
    """The others are answered as repetitions, by one more transaction."""

    async def scene(requests: Requests) -> None:
        blocking = asyncio.create_task(requests.send(content=b"b"))
        await settle()
        requests.effects = {2}
        waiting = requests.start(10)
        await settle()
        requests.go.set()
        await blocking
        assert sorted(await asyncio.gather(*waiting)) == [2, 3, *[4] * 8]

    play(scene)
