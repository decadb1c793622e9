"""Metering of a test's database up to the log's end, and what the ledger then says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from berth.client.consumer import Source
from orchestrator.operations.execution import Context
from tests.allocations.seeding import make_context
from tests.consumers.effects import run_until
from worker.metering.log_source import LogSource
from worker.metering.meter import make_consumer

LINES = """
select allocation_id::text, tenant_id::text, gpus, price_version, price_micro_per_gpu_second, starts_at, ends_at,
       gpu_microseconds, amount_micro_units from ledger where kind = 'usage' order by allocation_id
"""


def metered_to(database: psycopg.Connection[Any]) -> int:
    """Metering's position."""
    row = database.execute("select version from consumer_positions where consumer = 'metering'").fetchone()
    return 0 if row is None else int(row[0])


def meter_all(
    url: str, *, batch_max: int = 500, source_of: Callable[[Context], Source] | None = None
) -> list[tuple[Any, ...]]:
    """Sequence what waits, meter it all, and answer the ledger's lines."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("select log_advance(1000000)")
        row = database.execute("select version from log_head").fetchone()
        assert row is not None
        head = int(row[0])

        async def connect() -> psycopg.AsyncConnection[Any]:
            return await psycopg.AsyncConnection.connect(url)

        async def run() -> None:
            context = make_context(url, pool_size=1)
            try:
                source = LogSource(context, 0.01) if source_of is None else source_of(context)
                consumer = make_consumer(source, connect, batch_max)
                await run_until(consumer, lambda: metered_to(database) >= head)
            finally:
                await context.database.close()

        asyncio.run(run())
        return database.execute(LINES).fetchall()
