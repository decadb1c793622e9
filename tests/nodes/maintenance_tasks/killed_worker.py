"""One round of the sweeper, which dies at a crash point: `python -m ...killed_worker URL LABEL:NUMBER`."""

from __future__ import annotations

import asyncio
import sys

from berth.process.crash_points import install
from tests.allocations.seeding import make_context
from tests.testbuild.killing import kill_at
from worker.sweepers.maintenance import sweep_maintenance, sweep_maintenance_tasks


async def sweep(url: str) -> None:
    """Windows first, then their tasks, as the worker does."""
    context = make_context(url)
    await sweep_maintenance(context, 86_400.0, 10)
    await sweep_maintenance_tasks(context, {}, 10)
    await context.database.close()


if __name__ == "__main__":
    install(kill_at(lambda: sys.argv[2]))
    asyncio.run(sweep(sys.argv[1]))
