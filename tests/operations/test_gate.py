"""Duplicates at one gate: one run, no lost wake-up, bounded waits, and never an answer that the table would not give."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from orchestrator.edge.gate import BODY_LENGTH_MAX, Gate
from orchestrator.operations.gate_settings import GateSettings
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import OperationConflict, OperationInProgress, OutcomeUnknown
from tests.support.waiting import let_others_run

ONE = Operation(uuid.uuid4(), "k", b"a" * 32, 86_400.0)
DONE = Answer(201, '{"a": 1}', kept_seconds=86_400.0)
REPLAYED = Answer(201, '{"a": 1}', replayed=True)


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Running:
    """An operation that ends when the test says so; counts its runs."""

    def __init__(self, answer: Answer = DONE) -> None:
        self.runs = 0
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self._answer = answer
        self.failure: BaseException | None = None

    async def __call__(self) -> Answer:
        self.runs += 1
        self.began.set()
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure
        return self._answer


def ended(answer: Answer = DONE) -> Running:
    """An operation that ends at once."""
    running = Running(answer)
    running.may_end.set()
    return running


def play(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scene())  # type: ignore[arg-type]


async def settled(*tasks: asyncio.Task[Answer]) -> None:
    """Let every task go on as far as it can."""
    await let_others_run(10 + len(tasks))


@pytest.mark.parametrize("status", [201, 409])
def test_a_duplicate_is_answered_from_memory(status: int) -> None:
    async def scene() -> None:
        gate, running = Gate(GateSettings()), ended(Answer(status, "{}", kept_seconds=60.0))
        assert await gate.answer(ONE, running) == Answer(status, "{}")
        for _ in range(3):
            assert await gate.answer(ONE, running) == Answer(status, "{}", replayed=True)
        assert running.runs == 1

    play(scene)


def test_other_content_is_a_conflict_without_a_run() -> None:
    async def scene() -> None:
        gate, running, other = Gate(GateSettings()), ended(), ended()
        await gate.answer(ONE, running)
        with pytest.raises(OperationConflict):
            await gate.answer(replace(ONE, fingerprint=b"b" * 32), other)
        assert other.runs == 0

    play(scene)


def test_scopes_and_keys_are_distinguished() -> None:
    async def scene() -> None:
        gate = Gate(GateSettings())
        for operation in (ONE, replace(ONE, scope=uuid.uuid4()), replace(ONE, key="K")):
            running = ended()
            assert not (await gate.answer(operation, running)).replayed
            assert running.runs == 1

    play(scene)


def test_what_cannot_be_repeated_is_not_stored() -> None:
    async def scene() -> None:
        gate, running = Gate(GateSettings()), ended()
        for _ in range(2):
            await gate.answer(replace(ONE, key_is_ours=True), running)
        assert running.runs == 2

    play(scene)


@pytest.mark.parametrize("count", [1, 50])
def test_duplicates_in_flight_wait_for_the_first(count: int) -> None:
    async def scene() -> None:
        gate, running, never = Gate(GateSettings()), Running(), ended()
        first = asyncio.create_task(gate.answer(ONE, running))
        await running.began.wait()
        waiting = [asyncio.create_task(gate.answer(ONE, never)) for _ in range(count)]
        strange = asyncio.create_task(gate.answer(replace(ONE, fingerprint=b"b" * 32), never))
        await settled(*waiting)
        assert not any(task.done() for task in (first, strange, *waiting))
        running.may_end.set()
        assert [await task for task in (first, *waiting)] == [DONE] + [REPLAYED] * count
        with pytest.raises(OperationConflict):
            await strange
        assert (running.runs, never.runs) == (1, 0)

    play(scene)


def test_a_first_attempt_that_fails_leaves_one_duplicate_to_run_and_the_rest_to_wait() -> None:
    async def scene() -> None:
        gate, failing, second, third = Gate(GateSettings()), Running(), Running(), ended()
        failing.failure = OutcomeUnknown("the connection was lost")
        first = asyncio.create_task(gate.answer(ONE, failing))
        await failing.began.wait()
        waiting = [asyncio.create_task(gate.answer(ONE, run)) for run in (second, third, third)]
        await settled(*waiting)
        failing.may_end.set()
        with pytest.raises(OutcomeUnknown):
            await first
        await second.began.wait()
        await settled(*waiting)
        assert not any(task.done() for task in waiting), "one asks the table, the others wait for it"
        second.may_end.set()
        assert [await task for task in waiting] == [DONE, REPLAYED, REPLAYED]
        assert third.runs == 0

    play(scene)


def test_an_unknown_outcome_is_never_an_answer() -> None:
    async def scene() -> None:
        gate, failing = Gate(GateSettings()), ended()
        failing.failure = OutcomeUnknown("the connection was lost")
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                await gate.answer(ONE, failing)
        assert failing.runs == 2, "each attempt asks the table"
        assert await gate.answer(ONE, ended()) == DONE

    play(scene)


def test_a_cancelled_owner_leaves_its_key_to_the_next() -> None:
    async def scene() -> None:
        gate, hanging, second = Gate(GateSettings()), Running(), ended()
        first = asyncio.create_task(gate.answer(ONE, hanging))
        await hanging.began.wait()
        waiting = asyncio.create_task(gate.answer(ONE, second))
        await settled(waiting)
        first.cancel()
        assert await waiting == DONE
        assert second.runs == 1
        assert await gate.answer(ONE, second) == REPLAYED

    play(scene)


def test_a_cancelled_duplicate_harms_no_other_request() -> None:
    async def scene() -> None:
        gate, running = Gate(GateSettings()), Running()
        first = asyncio.create_task(gate.answer(ONE, running))
        await running.began.wait()
        gone, stays = (asyncio.create_task(gate.answer(ONE, running)) for _ in range(2))
        await settled(gone, stays)
        gone.cancel()
        running.may_end.set()
        assert [await first, await stays] == [DONE, REPLAYED]
        assert running.runs == 1

    play(scene)


@pytest.mark.parametrize(
    "settings",
    [GateSettings(pending_wait_timeout=0.05), GateSettings(wait_for_pending=False)],
    ids=["timeout", "never"],
)
def test_a_duplicate_that_gives_up_runs_nothing(settings: GateSettings) -> None:
    async def scene() -> None:
        gate, running, second = Gate(settings), Running(), ended()
        first = asyncio.create_task(gate.answer(ONE, running))
        await running.began.wait()
        with pytest.raises(OperationInProgress) as told:
            await gate.answer(ONE, second)
        assert (told.value.status, told.value.outcome, told.value.retry_after_seconds) == (409, "in_progress", 1)
        running.may_end.set()
        assert [await first, await gate.answer(ONE, second)] == [DONE, REPLAYED]
        assert (running.runs, second.runs) == (1, 0)

    play(scene)


def test_an_owner_that_runs_is_never_evicted_and_its_duplicates_ask_the_table_after_a_while() -> None:
    async def scene() -> None:
        clock = Clock()
        gate = Gate(GateSettings(max_entries=1, pending_ttl_seconds=60.0), clock)
        running, other, beside = Running(), ended(), ended(Answer(201, "the table's", replayed=True, kept_seconds=60.0))
        first = asyncio.create_task(gate.answer(ONE, running))
        await running.began.wait()
        for _ in range(2):
            assert await gate.answer(replace(ONE, key="another"), other) == DONE
        assert other.runs == 2, "there is no room for another: it passes by"
        waiting = asyncio.create_task(gate.answer(ONE, beside))
        clock.now += 59.0
        await settled(waiting)
        assert beside.runs == 0
        clock.now += 1.0
        assert (await gate.answer(ONE, beside)).body == "the table's"
        running.may_end.set()
        assert [await first, await waiting] == [DONE, REPLAYED]
        assert await gate.answer(ONE, beside) == REPLAYED, "the first is still the owner of its entry"

    play(scene)


@pytest.mark.parametrize(
    ("answer", "lasts"),
    [
        (DONE, 300.0),
        (Answer(404, "{}", kept_seconds=86_400.0), 60.0),
        (Answer(200, "{}", kept_seconds=10.0), 10.0),  # the table forgets earlier than the gate would
        (Answer(409, "{}", kept_seconds=10.0), 10.0),
    ],
)
def test_an_answer_ends_with_its_time(answer: Answer, lasts: float) -> None:
    async def scene() -> None:
        clock, running = Clock(), ended(answer)
        gate = Gate(GateSettings(), clock)
        await gate.answer(ONE, running)
        clock.now += lasts - 0.01
        await gate.answer(ONE, running)
        assert running.runs == 1
        clock.now += 0.01
        await gate.answer(ONE, running)
        assert running.runs == 2, "its use has not prolonged it"

    play(scene)


def test_the_tables_time_is_counted_from_before_it_was_asked() -> None:
    async def scene() -> None:
        clock, running = Clock(), Running(Answer(200, "{}", kept_seconds=10.0))
        gate = Gate(GateSettings(), clock)
        first = asyncio.create_task(gate.answer(ONE, running))
        await running.began.wait()
        clock.now += 8.0
        running.may_end.set()
        await first
        clock.now += 2.0
        await gate.answer(ONE, running)
        assert running.runs == 2

    play(scene)


@pytest.mark.parametrize("answer", [replace(DONE, kept_seconds=0.0), replace(DONE, body="x" * (BODY_LENGTH_MAX + 1))])
def test_what_is_not_vouched_for_or_too_long_is_left_to_the_table(answer: Answer) -> None:
    async def scene() -> None:
        gate, running = Gate(GateSettings()), ended(answer)
        for _ in range(2):
            assert await gate.answer(ONE, running) == answer
        assert running.runs == 2

    play(scene)


def test_forgetting_covers_answers_under_way() -> None:
    async def scene() -> None:
        gate, running = Gate(GateSettings()), Running()
        first = asyncio.create_task(gate.answer(ONE, running))
        await running.began.wait()
        gate.forget()
        running.may_end.set()
        await first
        await gate.answer(ONE, running)
        assert running.runs == 2, "the first was answered by a database that may be gone"
        await gate.answer(ONE, running)
        assert running.runs == 2
        gate.forget()
        await gate.answer(ONE, running)
        assert running.runs == 3

    play(scene)


@pytest.mark.parametrize(
    "wrong",
    [
        {"IDEMPOTENCY_PENDING_TTL_SECONDS": "0"},
        {"IDEMPOTENCY_COMMITTED_TTL_SECONDS": "-1"},
        {"IDEMPOTENCY_REJECTED_TTL_SECONDS": "inf"},
        {"IDEMPOTENCY_MAX_ENTRIES": "0"},
        {"IDEMPOTENCY_CLEANUP_INTERVAL_SECONDS": "nan"},
        {"IDEMPOTENCY_WAIT_FOR_PENDING": "perhaps"},
        {"IDEMPOTENCY_PENDING_WAIT_TIMEOUT": "4000"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_settings_have_the_sources_names_and_are_checked(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]
) -> None:
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="1 validation error for GateSettings"):
        GateSettings()


def test_the_sources_defaults_hold() -> None:
    assert GateSettings().model_dump(exclude={"max_bytes"}) == {
        "pending_ttl_seconds": 60.0, "committed_ttl_seconds": 300.0, "rejected_ttl_seconds": 60.0, "max_entries": 100_000,
        "cleanup_interval_seconds": 10.0, "wait_for_pending": True, "pending_wait_timeout": 30.0,
    }  # fmt: skip
