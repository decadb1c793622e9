"""Workers that die at a statement of a transaction, one after another."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from migrations.roles import Role
from orchestrator.database.transactions import Reading, connect_database
from orchestrator.operations.execution import Context, Limits
from tests.databases import as_role
from tests.sites.rotations import Killed
from tests.sites.running import Run
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
