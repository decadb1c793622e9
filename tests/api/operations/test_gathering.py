"""The queue that combines requests: each is answered once, bounds hold, and the first of many rivals answers for the rest."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.edge.batching import Batcher
from orchestrator.operations.execution import Deferred, Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import ConcurrencyLimited, Problem
from tests.support.waiting import async_wait_for, let_others_run

TENANT = UUID(int=1)
LISTS_MAX = 2
BATCH_MAX = 5
Way = tuple[str, str]
"""What a list, and going alone, does with a request: answers it, refuses it, leaves it, fails."""
ROUTES = st.tuples(
    st.sampled_from(["answer", "refuse", "leave", "fail"]), st.sampled_from(["answer", "refuse", "fail"])
)


@dataclass(frozen=True)
class Wish:
    """A request that can be one of a list."""

    operation: Operation
    way: Way


def wish(key: int, way: Way = ("leave", "answer")) -> Wish:
    """One of a tenant under this key."""
    return Wish(Operation(TENANT, f"key-{key}", b"", 60.0), way)


class World:
    """Carries out requests as they ask for it, and watches what is under way."""

    def __init__(self, queue_max: int | None = None) -> None:
        self.gatherer: Batcher[Wish] = Batcher(
            "wishes", self.carry, batch_max=BATCH_MAX, batches_in_flight_max=LISTS_MAX, queue_max=queue_max
        )
        self.lists: list[list[str]] = []
        self.alone: list[str] = []
        self.lists_now = self.alone_now = self.lists_most = self.alone_most = 0
        self.longest = 0
        self.keys: list[str] = []
        self.twice: list[str] = []
        self.settled = asyncio.Event()

    def note(self, keys: list[str]) -> None:
        """These are under way now."""
        for key in keys:
            if key in self.keys:
                self.twice.append(key)
            self.keys.append(key)

    async def carry(self, wishes: list[Wish]) -> Sequence[Result | Deferred]:
        """A list."""
        keys = [one.operation.key for one in wishes]
        self.note(keys)
        self.longest = max(self.longest, len(keys))
        self.lists.append(keys)
        self.lists_now += 1
        self.lists_most = max(self.lists_most, self.lists_now)
        await let_others_run()
        self.lists_now -= 1
        for key in keys:
            self.keys.remove(key)
        if any(one.way[0] == "fail" for one in wishes):
            raise RuntimeError("a list failed")
        return [self.judge(one) for one in wishes]

    def judge(self, one: Wish) -> Result | Deferred:
        """Its place in a list."""
        match one.way[0]:
            case "answer":
                return Answer(201, "{}")
            case "refuse":
                return Problem("no")
        return Answer(409, "{}") if self.settled.is_set() else Deferred(partial(self.later, one))

    async def later(self, one: Wish) -> Result:
        """Alone."""
        self.alone.append(one.operation.key)
        self.note([one.operation.key])
        self.alone_now += 1
        self.alone_most = max(self.alone_most, self.alone_now)
        await let_others_run()
        self.alone_now -= 1
        self.keys.remove(one.operation.key)
        if one.way[1] == "fail":
            raise RuntimeError("one failed")
        return Answer(201, "{}") if one.way[1] == "answer" else Problem("no")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 30), ROUTES), max_size=60))
def test_each_is_answered_once_and_no_bound_is_passed(asked: list[tuple[int, Way]]) -> None:
    async def scene() -> None:
        world = World()
        answers = [asyncio.create_task(world.gatherer.answer(wish(key, way))) for key, way in asked]
        async with asyncio.timeout(10):
            results = await asyncio.gather(*answers, return_exceptions=True)
        assert all(isinstance(one, Answer | Problem) for one in results)
        assert world.lists_most <= LISTS_MAX
        assert world.alone_most <= LISTS_MAX
        assert len(world.alone) <= len(asked)
        assert sum(map(len, world.lists)) <= 2 * len(asked), "at most twice in a list"
        assert world.longest <= BATCH_MAX
        assert (world.keys, world.twice) == ([], []), "never two with one key at once"

    asyncio.run(scene())


def test_what_the_first_rival_does_alone_answers_for_the_rest_in_lists() -> None:
    async def scene() -> None:
        world = World()

        async def take(one: Wish) -> Result:
            await let_others_run(10)
            world.settled.set()
            return await World.later(world, one)

        world.later = take  # type: ignore[method-assign]
        answers = [asyncio.create_task(world.gatherer.answer(wish(key))) for key in range(40)]
        async with asyncio.timeout(10):
            statuses = [answer.status for answer in await asyncio.gather(*answers)]
        assert statuses.count(201) == len(world.alone) <= LISTS_MAX
        assert statuses.count(409) == 40 - len(world.alone)

    asyncio.run(scene())


def test_what_no_rival_settles_is_tried_in_two_lists_at_most() -> None:
    async def scene() -> None:
        world = World()
        answers = [asyncio.create_task(world.gatherer.answer(wish(key))) for key in range(40)]
        async with asyncio.timeout(10):
            await asyncio.gather(*answers)
        assert sorted(world.alone) == sorted(f"key-{key}" for key in range(40))
        tried = Counter(key for keys in world.lists for key in keys)
        assert max(tried.values()) == 2

    asyncio.run(scene())


def test_a_full_queue_refuses_what_comes_and_what_waits_is_not_counted_out() -> None:
    async def scene() -> None:
        world = World(queue_max=3)
        answers = [asyncio.create_task(world.gatherer.answer(wish(key, ("answer", "answer")))) for key in range(20)]
        results = await asyncio.gather(*answers, return_exceptions=True)
        refused = [one for one in results if isinstance(one, ConcurrencyLimited)]
        assert refused, "one tenant has its share of the places"
        assert all(isinstance(one, Answer | ConcurrencyLimited) for one in results)
        assert sum(map(len, world.lists)) == 20 - len(refused)

    asyncio.run(scene())


def test_a_small_list_gathers_for_a_moment_beside_a_larger_one_and_then_runs() -> None:
    async def scene() -> None:
        lists: list[list[str]] = []
        ends: list[asyncio.Event] = []

        async def carry(wishes: list[Wish]) -> Sequence[Result | Deferred]:
            lists.append([one.operation.key for one in wishes])
            ends.append(asyncio.Event())
            await ends[-1].wait()
            return [Answer(201, "{}")] * len(wishes)

        gatherer: Batcher[Wish] = Batcher("wishes", carry, batch_max=BATCH_MAX, batches_in_flight_max=2, queue_max=None)
        answers: list[asyncio.Task[Answer]] = []

        async def ask(*keys: int) -> None:
            answers.extend(asyncio.create_task(gatherer.answer(wish(key))) for key in keys)
            await let_others_run(2)

        async def until_lists(number: int) -> None:
            await async_wait_for(lambda: len(lists) >= number, f"{number} lists", 10)

        async with asyncio.timeout(10):
            await ask(1)
            await ask(2, 3, 4, 5)
            ends[0].set()
            await until_lists(3)
            ends[1].set()
            await answers[1]
            await ask(6)
            await ask(7)
            assert len(lists) == 3, "smaller than the list that runs: it waits for more"
            await until_lists(4)
            assert lists == [["key-1"], ["key-2"], ["key-3", "key-4", "key-5"], ["key-6", "key-7"]]
            for end in ends:
                end.set()
            await asyncio.gather(*answers)

    asyncio.run(scene())
