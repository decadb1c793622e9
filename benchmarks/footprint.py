"""What one allocation leaves behind from its POST to `released`: bytes of tables, of WAL and of the NATS stream."""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg

from benchmarks.active import NoopStack, wait_for_state
from benchmarks.figures import Figure
from benchmarks.log.relay import STREAM, wait_for_version
from benchmarks.running import number, tenant_of, wait_for_log
from berth.cli.deployment.stream_check import connect_nats
from berth.client import Client
from berth.local.fleet import PATTERN, SLICE_SKU
from berth.local.options import StackOptions
from berth.local.stack import Stack

AGENTS = 2
ALLOCATIONS = 1_000
WARM_ALLOCATIONS = 200
"""Allocations before the first measurement: every table has its first pages, and every index its root."""
CLIENTS = 8
SMALLEST_BYTES = 8.0
"""A table that grows by less for each allocation is only part of the sum."""
SETTLE_SECONDS_MAX = 60.0
SIZES = """
    select coalesce(r.relname, c.relname)::text, sum(pg_total_relation_size(c.oid))::bigint
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_inherits i on i.inhrelid = c.oid
    left join pg_class r on r.oid = i.inhparent
    where n.nspname = 'public' and c.relkind in ('r', 'm')
    group by 1
"""
"""Size of each table with its indexes and TOAST; partitions count for their table."""


@dataclass(frozen=True)
class _Sizes:
    """What is stored at one moment: bytes of each table, WAL position in bytes, events and bytes of the stream."""

    tables: dict[str, int]
    wal_bytes: int
    events: int
    stream_bytes: int


def run(quick: bool) -> list[Figure]:
    """Allocations of slices on agents whose driver does nothing, eight at once; the difference of two measurements, for each."""
    count = 100 if quick else ALLOCATIONS
    with (
        tempfile.TemporaryDirectory(prefix="berth-bench-") as directory,
        NoopStack(StackOptions(Path(directory) / "state", agents=AGENTS, wished_port=None)) as stack,
        tenant_of(stack) as (client, ssh_key_id),
    ):
        _allocate(client, ssh_key_id, WARM_ALLOCATIONS // (4 if quick else 1))
        before = _measure(stack)
        _allocate(client, ssh_key_id, count)
        after = _measure(stack)
    return _figures(before, after, count)


def _figures(before: _Sizes, after: _Sizes, count: int) -> list[Figure]:
    grown = {name: (size - before.tables.get(name, 0)) / count for name, size in after.tables.items()}
    tables = sorted(((size, name) for name, size in grown.items() if size >= SMALLEST_BYTES), reverse=True)
    return [
        Figure("allocation_events", (after.events - before.events) / count, "events", note=f"{count:,} allocations"),
        Figure(
            "allocation_stream", (after.stream_bytes - before.stream_bytes) / count, "bytes", note="in one NATS server"
        ),
        Figure(
            "allocation_wal", (after.wal_bytes - before.wal_bytes) / count, "bytes", note="full page images included"
        ),
        Figure("allocation_tables", sum(grown.values()), "bytes", note="with indexes"),
        *(Figure(f"allocation_table_{name}", size, "bytes") for size, name in tables),
    ]


def _allocate(client: Client, ssh_key_id: UUID, count: int) -> None:
    """So many allocations, created, active and released."""

    def allocate(number: int) -> None:
        del number
        made = client.create_allocation(sku=SLICE_SKU, gpus=1, region=PATTERN[0][0], ssh_key_ids=[ssh_key_id])
        wait_for_state(client, made.allocation_id, "active")
        client.release_allocation(made.allocation_id)
        wait_for_state(client, made.allocation_id, "released")

    with ThreadPoolExecutor(CLIENTS) as clients:
        for _ in clients.map(allocate, range(count)):
            pass


def _measure(stack: Stack) -> _Sizes:
    """Sizes once every event is in the stream, after a vacuum, so that what was deleted is no growth."""
    with psycopg.connect(stack.endpoints.database_url, autocommit=True) as database:
        version = wait_for_log(database)
        events, stream_bytes = asyncio.run(_stream(stack.endpoints.nats_url, version))
        wal_bytes = number(database, "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        database.execute("vacuum")
        tables: dict[str, int] = dict(database.execute(SIZES.encode()).fetchall())
    return _Sizes(tables, wal_bytes, events, stream_bytes)


async def _stream(nats_url: str, version: int) -> tuple[int, int]:
    """Events and bytes of the stream, once it ends at `version` or later."""
    client = await connect_nats(nats_url)
    try:
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            await wait_for_version(client, version)
        state = (await client.jetstream().stream_info(STREAM)).state
    finally:
        await client.close()
    return state.messages, state.bytes
