"""What one allocation leaves behind from its POST to `released`: bytes of tables, of WAL and of the NATS stream."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from benchmarks.active import NoopStack, wait_for_state
from benchmarks.figures import Figure
from benchmarks.seeding import SSH_PUBLIC_KEY
from berth.cli.deployment.stream_check import STREAM, connect_nats
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
    with _stack() as (stack, client, ssh_key_id):
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


@contextmanager
def _stack() -> Iterator[tuple[Stack, Client, UUID]]:
    """A local stack, a client of its one tenant, and that tenant's SSH key."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as directory:
        options = StackOptions(Path(directory) / "state", agents=AGENTS, wished_port=None)
        with NoopStack(options) as stack, stack.admin() as admin:
            tenant = admin.create_tenant(name="benchmark")
            key = admin.create_api_key(name="benchmark", role="tenant", tenant_id=tenant.id)
            with Client(stack.endpoints.api_url, key.key) as client:
                yield stack, client, client.add_ssh_key(name="benchmark", public_key=SSH_PUBLIC_KEY).id


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
        version = _settled_version(database)
        events, stream_bytes = asyncio.run(_stream(stack.endpoints.nats_url, version))
        wal_bytes = _one(database, "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        database.execute("vacuum")
        tables: dict[str, int] = dict(database.execute(SIZES.encode()).fetchall())
    return _Sizes(tables, wal_bytes, events, stream_bytes)


def _settled_version(database: psycopg.Connection[Any]) -> int:
    """The newest version once no event waits for one. Raises RuntimeError if that takes too long."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while _one(database, "select count(*) from outbox"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"events wait for the relay for {SETTLE_SECONDS_MAX:.0f} s")
        time.sleep(0.1)
    return _one(database, "select version from log_head")


async def _stream(nats_url: str, version: int) -> tuple[int, int]:
    """Events and bytes of the stream, once it ends at `version` or later."""
    client = await connect_nats(nats_url)
    try:
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            while True:
                state = (await client.jetstream().stream_info(STREAM)).state
                if state.last_seq >= version:
                    return state.messages, state.bytes
                await asyncio.sleep(0.1)
    finally:
        await client.close()


def _one(database: psycopg.Connection[Any], statement: str) -> int:
    row = database.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])
