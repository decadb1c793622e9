"""The worker dies at each statement of each move of a run: the step before is left, and the next worker goes on."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from orchestrator.nodes.commands.deploy_tasks import advance_deploy_task
from orchestrator.sites.commands.runs import advance_run
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.running import Run, another, running


async def run_through(workers: Workers, run: Run, number: int) -> None:
    """A run from off to off, before each of whose moves a worker dies."""
    await run.request()
    while (await run.shown())["outcome"] is None:
        await workers.killed(number, lambda context: advance_run(context, run.node))
        if (await run.shown())["outcome"] is not None or await run.advance() is not None:
            continue
        shown = await run.shown()
        if shown["step"] == "work" and run.machine.service.machine.power == "On":
            serial = run.boot()
            await workers.killed(number, lambda context: advance_deploy_task(context, run.node))
            await run.report(serial)
        elif shown["step"] != "work":
            await run.perform()
    shown = await run.shown()
    assert (shown["outcome"], shown["failure"]) == ("completed", None)
    assert run.machine.service.machine.effects.count("On") == 1
    assert run.is_undone()


@pytest.mark.parametrize(
    "numbers", [pytest.param([QUICK], id="one"), pytest.param(None, id="every", marks=pytest.mark.full)]
)
def test_a_worker_that_dies_leaves_the_step_before(
    database_url: str, tmp_path: Path, numbers: list[int] | None
) -> None:
    async def scene() -> int:
        async with running(database_url, tmp_path) as first:
            for number in numbers or itertools.count(1):
                workers = Workers(database_url, first)
                await run_through(workers, await another(first.stage), number)
                assert workers.deaths or numbers is None
                if not workers.deaths:
                    break
        return number

    assert asyncio.run(scene()) >= QUICK
