"""Metering: events of complete lifecycles, turned into intervals and ledger lines per second."""

from __future__ import annotations

import asyncio
import time

import psycopg

from benchmarks.figures import Figure
from benchmarks.running import bench, number
from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context, Limits
from worker.metering.log_source import LogSource
from worker.metering.meter import make_consumer

EVENTS = 60_000
EVENTS_PER_SECOND_MIN = 2_000
HISTORIES = """
insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
select e.kind, clock_timestamp(), l.id, t.id, 'allocations/' || l.id,
       jsonb_build_object('allocation_id', l.id, 'sku', s.name, 'shape', s.shape, 'gpus', 1 + l.n %% 8, 'region', 'r',
           'node_id', l.id, 'price_version', s.price_version, 'active_at', now() - interval '1 hour', 'fence', l.n,
           'releasing_at', now(), 'reason', 'requested', 'actor_kind', 'tenant')
from (select n, uuidv7() as id from generate_series(1, %s) n) l,
     (select * from skus order by name limit 1) s, (select id from tenants order by id limit 1) t,
     unnest(array['provisioning.requested', 'task.finished', 'provisioning.active', 'provisioning.releasing.requested',
                  'task.finished', 'provisioning.releasing.completed']) with ordinality as e(kind, place)
order by l.n, e.place
"""


def run(quick: bool) -> list[Figure]:
    """Six events per lifecycle, two of them metered; measured from the log to the ledger, commits included."""
    events = EVENTS // (6 if quick else 1)
    with bench() as servers:
        url, _ = servers.fleet(1)
        with psycopg.connect(url, autocommit=True) as database:
            database.execute(HISTORIES, (events // 6,))
            while database.execute("select log_advance(5000)").fetchone() != (0,):
                pass
            head = number(database, "select version from log_head")
            seconds = asyncio.run(_meter(url, head))
            lines = number(database, "select count(*) from ledger")
    if lines != events // 6:
        raise RuntimeError(f"{lines} lines for {events // 6} lifecycles")
    note = f"{lines:,} lines of the ledger"
    return [
        Figure("metering", head / seconds, "events/s", EVENTS_PER_SECOND_MIN, at_least=True, note=note),
    ]


async def _meter(url: str, head: int) -> float:
    database = connect_database(
        url, pool_size=1, reserve_size=1, lock_timeout_seconds=5, transaction_timeout_seconds=30, application="bench"
    )
    stop = asyncio.Event()
    consumer = make_consumer(
        LogSource(Context(database, Limits()), 0.05), lambda: psycopg.AsyncConnection.connect(url), 500
    )
    began = time.monotonic()
    going = asyncio.create_task(consumer.run(stop))
    while (consumer.position or 0) < head and not going.done():
        await asyncio.sleep(0.005)
    seconds = time.monotonic() - began
    stop.set()
    await going
    await database.close()
    return seconds
