"""The runner of sweepers (intervals, backoff, survival of failures) and the table of docs/reference/sweepers.md."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from temporalio.service import RPCError, RPCStatusCode

from orchestrator.problems import Problem
from tests.allocations.seeding import make_context, write_signing_key
from worker.settings import Settings
from worker.sweepers.runner import BACKOFF_FACTOR_MAX, SweepRunner
from worker.sweepers.sweeper import Sweeper, isolate_failure
from worker.sweepers.table import make_prompt_sweepers, make_sweepers
from worker.webhooks import app as webhooks
from worker.webhooks.settings import WebhookSettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sweepers.md"


class Clock:
    """A clock that moves only when a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Job:
    """A sweeper's run that records when it ran, and raises or returns what it was given."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.times: list[float] = []
        self.error: Exception | None = None
        self.work_left = False

    async def __call__(self) -> bool:
        self.times.append(self.clock.now)
        if self.error is not None:
            raise self.error
        return self.work_left


def failures(sweeper: str) -> float:
    """The failures that this process has counted for the sweeper."""
    return REGISTRY.get_sample_value("berth_worker_sweep_failures_total", {"sweeper": sweeper}) or 0.0


def runs(sweeper: str) -> float | None:
    """How many runs of the sweeper were timed."""
    return REGISTRY.get_sample_value("berth_worker_sweep_seconds_count", {"sweeper": sweeper})


def run_until(runner: SweepRunner, clock: Clock, end: float) -> None:
    """Run every due sweeper, moving the clock from due time to due time, up to `end`."""

    async def main() -> None:
        while clock.now <= end:
            await runner.run_due()
            clock.now = runner.next_due()

    asyncio.run(main())


def test_each_sweeper_runs_at_its_interval() -> None:
    clock = Clock()
    often, seldom, impatient, zero = Job(clock), Job(clock), Job(clock), Job(clock)
    sweepers = [
        Sweeper("often", 5, often, ""), Sweeper("seldom", 15, seldom, ""), Sweeper("impatient", 2.5, impatient, ""),
        Sweeper("zero", 0, zero, ""),
    ]  # fmt: skip
    run_until(SweepRunner(sweepers, 5, clock), clock, 20)
    assert often.times == [0, 5, 10, 15, 20]
    assert seldom.times == [0, 15]
    assert impatient.times == [2.5 * number for number in range(9)], "an interval below the pause is its interval"
    assert zero.times == often.times, "an interval of 0 is the pause"


def test_work_left_is_continued_in_the_next_round() -> None:
    clock = Clock()
    job = Job(clock)
    runner = SweepRunner([Sweeper("job", 60, job, "")], 5, clock)
    job.work_left = True
    run_until(runner, clock, 10)
    job.work_left = False
    run_until(runner, clock, 80)
    assert job.times == [0, 5, 10, 15, 75]


@pytest.mark.parametrize(
    "error",
    [Problem("the database is unavailable"), RPCError("x", RPCStatusCode.UNAVAILABLE, b""), ZeroDivisionError()],
)
def test_a_failing_sweeper_is_counted_and_retried_with_backoff_and_the_others_run_on(error: Exception) -> None:
    clock = Clock()
    failing, healthy = Job(clock), Job(clock)
    failing.error = error
    runner = SweepRunner([Sweeper("failing", 5, failing, ""), Sweeper("healthy", 5, healthy, "")], 5, clock)
    before, timed = failures("failing"), runs("failing")
    run_until(runner, clock, 55)
    assert failing.times == [0, 5, 15, 35, 55], f"pauses of 5, 10, and then {BACKOFF_FACTOR_MAX} times 5"
    assert failures("failing") - before == len(failing.times)
    assert (runs("failing") or 0) - (timed or 0) == len(failing.times), "runs that fail are timed too"
    assert healthy.times == list(range(0, 60, 5))
    failing.error = None
    run_until(runner, clock, 85)
    assert failing.times[5:] == [75, 80, 85], "one success ends the backoff"


def test_a_failed_item_does_not_stop_the_sweep() -> None:
    before = failures("some_sweeper")
    handled = []
    for number in range(3):
        with isolate_failure("some_sweeper", number=str(number)):
            if number == 1:
                raise Problem("the row is locked")
            handled.append(number)
    assert handled == [0, 2]
    assert failures("some_sweeper") - before == 1


def test_a_defect_of_an_item_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), isolate_failure("some_sweeper"):
        raise ZeroDivisionError


def test_the_page_lists_every_sweeper_with_its_interval_and_what_it_ends(tmp_path: Path) -> None:
    """Sweepers whose interval is a separate setting name it; `sweep_seconds` is the default."""
    settings = Settings(
        database_url="postgresql://user:x@127.0.0.1:1/none", nats_url="nats://127.0.0.1:1",
        temporal_address="127.0.0.1:1", task_signing_key_file=write_signing_key(tmp_path / "key.pem"),
        temporal_payload_key_file=Path("none"),
    )  # fmt: skip
    of_sender = WebhookSettings(database_url=settings.database_url, webhook_key_file=Path("none"))
    context = make_context(settings.database_url)
    sweepers = make_sweepers(context, None, settings)  # type: ignore[arg-type]
    sweepers += make_prompt_sweepers(context, settings)
    sweepers += webhooks.make_sweepers(context, of_sender)
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) s[^|]*\| ([^|]*) \|[^|]*\|[^|]*\|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(sweeper.name, f"{sweeper.interval_seconds:g}", sweeper.ends) for sweeper in sweepers]
    assert len({sweeper.name for sweeper in sweepers}) == len(sweepers)
    for sweeper in sweepers:
        SweepRunner([sweeper], 1)
        assert REGISTRY.get_sample_value("berth_worker_sweep_failures_total", {"sweeper": sweeper.name}) is not None
        assert runs(sweeper.name) is not None


def test_the_page_names_the_queries_and_commands_of_the_sweepers() -> None:
    root = PAGE.parents[2]
    named = re.findall(r"`((?:orchestrator|worker)/[\w/]+\.py)`((?:,? `\w+`)*)", PAGE.read_text())
    assert len(named) > 30
    for path, functions in named:
        text = (root / path).read_text()
        for function in re.findall(r"\w+", functions):
            assert f"def {function}(" in text, f"{path} has no {function}"
    for functions in re.findall(r"\(SQL ([^)]*)\)", PAGE.read_text()):
        for function in re.findall(r"`(\w+)`", functions):
            assert list((root / "migrations" / "functions").glob(f"*/{function}.sql")), function
