"""`python -m tests.approvals.sweeping <database url> [<label>:<n>]`: one sweep of approvals, killed at a crash point."""

from __future__ import annotations

import asyncio
import sys

from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context, Limits
from tests.testbuild.__main__ import arm
from worker.sweepers.approvals import sweep_approvals


async def sweep(url: str) -> None:
    """One sweep as the worker does it."""
    database = connect_database(
        url, pool_size=1, reserve_size=1, lock_timeout_seconds=1, transaction_timeout_seconds=5, application="test"
    )
    try:
        await sweep_approvals(Context(database, Limits()), 3_600.0, 10)
    finally:
        await database.close()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        arm("worker", sys.argv[2])
    asyncio.run(sweep(sys.argv[1]))
