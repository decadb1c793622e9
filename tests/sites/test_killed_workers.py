"""The worker dies at each statement of each move of a run: the step before is left, and the next worker goes on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrations.roles import Role
from orchestrator.database.transactions import Reading, connect_database
from orchestrator.nodes.commands.deploy_tasks import advance_deploy_task
from orchestrator.operations.execution import Context, Limits
from orchestrator.sites.commands.runs import advance_run
from tests.databases import as_role
from tests.sites.rotations import Killed
from tests.sites.running import Run, another, running
from tests.testbuild import planting

QUICK = 6
LEFT = """
select (select array_agg(r::text order by id) from deploy_runs r), (select array_agg(t::text order by id) from bmc_tasks t),
       (select array_agg(d::text order by id) from deploy_systems d), (select array_agg(t::text order by id) from deploy_tasks t),
       (select count(*) from node_tasks), (select count(*) from outbox), (select count(*) from audit_pending)
"""


@contextlib.contextmanager
def dying_at(number: int) -> Iterator[None]:
    """In the block the process dies instead of its statement of this number."""
    real, reached, thread = Reading.execute, 0, threading.get_ident()

    async def execute(self: Reading, *arguments: Any) -> Any:
        nonlocal reached
        reached += threading.get_ident() == thread  # the rounds of a stage run in another one
        if reached == number and threading.get_ident() == thread:
            raise Killed
        return await real(self, *arguments)

    planting.replace(Reading, "execute", execute)
    try:
        yield
    finally:
        planting.unplant()


class Workers:
    """Workers one after another, each with its own connections."""

    def __init__(self, url: str, run: Run) -> None:
        self.url, self.run, self.deaths = url, run, 0

    async def killed(self, number: int, work: Callable[[Context], Awaitable[object]]) -> None:
        """A worker that dies at its statement of this number has changed nothing; one that gets so far is no death."""
        before = self.run.row(LEFT)
        database = connect_database(
            as_role(self.url, Role.WORKER), pool_size=1, reserve_size=1, lock_timeout_seconds=5,
            transaction_timeout_seconds=30, application="tests",
        )  # fmt: skip
        context = Context(database, Limits(), self.run.stage.context.signer)
        try:
            with dying_at(number):
                await work(context)
        except Killed:
            self.deaths += 1
            assert self.run.row(LEFT) == before
        finally:
            await database.close()


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
