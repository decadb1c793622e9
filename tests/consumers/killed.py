"""`python -m tests.consumers.killed URL N`: meter one event a transaction, and die of SIGKILL at N boundaries of each, of
before it, in it, and behind it, in turn.

Prints how often it died and how many events were metered. Each try is a separate process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import psycopg

from berth.client import Event
from tests.allocations.seeding import make_context
from tests.consumers.effects import run_until
from tests.consumers.metered import metered_to
from worker.metering import meter
from worker.metering.log_source import LogSource

PHASES = ("before", "in", "after")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _try(url: str, head: int, phase: str | None) -> None:
    """Meter, and die at the next event that is metered: before its effect, behind it, or when it is committed."""
    write_down = meter.write_down
    seen = False

    async def dying(
        transaction: psycopg.AsyncConnection[Any],
        events: Sequence[Event],
        rule: meter.CreditRule = "last_proof_of_life",
    ) -> None:
        nonlocal seen
        if seen or phase == "before":
            _die()
        await write_down(transaction, events, rule)
        if phase == "in":
            _die()
        seen = phase == "after"

    meter.write_down = dying

    async def run() -> None:
        context = make_context(url, pool_size=1)
        with psycopg.connect(url, autocommit=True) as database:

            def done() -> bool:
                if seen and metered_to(database) >= (consumer.position or 0) > 0:
                    _die()
                return metered_to(database) >= head

            consumer = meter.make_consumer(
                LogSource(context, 0.01), lambda: psycopg.AsyncConnection.connect(url), batch_max=1
            )
            await run_until(consumer, done)
        await context.database.close()

    asyncio.run(run())


def main() -> None:
    """Try after try; each event is died at in every phase before it is let through."""
    url = sys.argv[1]
    deaths = 0
    with psycopg.connect(url, autocommit=True) as database:
        row = database.execute("select version from log_head").fetchone()
        assert row is not None
        head = int(row[0])
    metered = 0
    while True:
        for turn in range(int(sys.argv[2])):
            phase = PHASES[(metered + turn) % len(PHASES)]
            child = os.fork()
            if child == 0:
                try:
                    _try(url, head, phase)
                finally:
                    os._exit(0)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                print(deaths, metered)  # noqa: T201
                return
            deaths += 1
        metered += 1


if __name__ == "__main__":
    main()
