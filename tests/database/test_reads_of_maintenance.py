"""What maintenance and resets of GPUs read does not grow with the fleet: rows read at 50,000 nodes, by table.

Rows are counted by PostgreSQL, so that statements within functions count too.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from benchmarks.seeding import seed_fleet
from orchestrator.database.transactions import Transaction
from orchestrator.maintenance import store
from orchestrator.maintenance.states import WindowState
from orchestrator.nodes.store import gpu_resets
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.resource_names import parse_resources
from tests.allocations.driving import run_with
from tests.allocations.seeding import connect

NODES = 50_000
TABLES = (
    "nodes", "slots", "claims", "maintenance_windows", "maintenance_units", "slot_quarantines", "node_gpu_resets", "node_tasks",
)  # fmt: skip
ROWS_MAX = 2_000
"""Of one table by one step of a window of two nodes with eight slots each."""
_FILL = """
insert into maintenance_windows (starts_at, ends_at, reason, waits_for, waits_since, waits_until)
select now() + make_interval(days => 30, secs => i), now() + make_interval(days => 31), 'm', 'start', now(),
       now() + make_interval(days => 30, secs => i) from generate_series(1, 8000) i;
insert into maintenance_windows (starts_at, ends_at, reason, state, started_at, ended_at)
select now() - make_interval(days => 3), now() - make_interval(days => 2), 'm', 'ended', now() - make_interval(days => 3),
       now() - make_interval(days => 2) from generate_series(1, 8000);
insert into maintenance_units (window_id, node_id, units)
select w.id, n.id, n.units from (select id, row_number() over (order by id) as i from maintenance_windows) w
join (select id, int8multirange(int8range(unit_base, unit_base + slot_count)) as units, row_number() over (order by id) as i
      from nodes) n on n.i = w.i;
insert into claims (node_id, owner_kind, owner_id, units, during, fence)
select u.node_id, 'maintenance', u.window_id, u.units, tstzrange(w.starts_at, w.ends_at), nextval('fences')
from maintenance_units u join maintenance_windows w on w.id = u.window_id where w.state = 'scheduled';
insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by)
select node_id, slot_index, unit, 'r', 'admin:a' from slots where slot_index = 0;
insert into node_gpu_resets (node_id, slots, gpus, requested_by, ended_at, outcome)
select id, '{0}', '{p}', 'admin:a', now(), 'failed' from nodes;
"""
_READ = """
select relname, seq_tup_read + coalesce(idx_tup_fetch, 0) as rows from pg_stat_xact_user_tables where relname = any (:tables)
"""
Step = Callable[[Transaction], Awaitable[Any]]


async def rows_read(context: Context, step: Step) -> tuple[Any, dict[str, int]]:
    """What a step returns, and the rows that it read of each table."""

    async def work(tx: Transaction) -> tuple[Any, dict[str, int]]:
        before = {row.relname: row.rows for row in await tx.execute(_READ, {"tables": list(TABLES)})}
        found = await step(tx)
        after = {row.relname: row.rows for row in await tx.execute(_READ, {"tables": list(TABLES)})}
        return found, {name: after[name] - before.get(name, 0) for name in after}

    return await transact(context, work)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_no_step_reads_the_fleet(database_url: str) -> None:
    seed_fleet(database_url, NODES)
    with connect(database_url) as connection:
        connection.execute(_FILL)
        connection.execute("vacuum (analyze)")
        nodes = [row[0] for row in connection.execute("select id from nodes order by id desc limit 2")]
    read: dict[str, dict[str, int]] = {}

    async def way(context: Context) -> None:
        async def measure(name: str, step: Step) -> Any:
            found, read[name] = await rows_read(context, step)
            return found

        named = parse_resources([f"node:{node}" for node in nodes])
        targets = await measure("find_targets", lambda tx: store.find_targets(tx, named))
        now = await measure("read_clock", store.read_clock)
        starts, ends = now + timedelta(hours=1), now + timedelta(hours=2)
        await measure("find_conflicts", lambda tx: store.find_conflicts(tx, targets, starts, ends))
        window = await measure(
            "insert_window", lambda tx: store.insert_window(tx, targets, starts, ends, "m", open_max=10_000)
        )
        with connect(database_url) as connection:
            connection.execute(
                "update maintenance_windows set (starts_at, waits_until) = (select s, s from (select clock_timestamp() as s) n)"
                " where id = %s",
                (window.id,),
            )
        assert await measure("find_due", lambda tx: store.find_due(tx, 100)) == [window.id]
        assert (await measure("lock_due", lambda tx: store.lock_due(tx, window.id))) is not None
        started = await measure("start_window", lambda tx: store.start_window(tx, window.id))
        assert len(await measure("gpu resets: read_slots", lambda tx: gpu_resets.read_slots(tx, nodes[0]))) > 0
        await measure("gpu resets: find_open", lambda tx: gpu_resets.find_open(tx, 100))
        await measure("gpu resets: read_open", lambda tx: gpu_resets.read_open(tx, nodes[0]))
        await measure("gpu resets: list", lambda tx: gpu_resets.list_gpu_resets(tx, nodes[0], before=None, limit=50))
        assert await measure("find_reset", lambda tx: store.find_reset(tx, window.id)) is None
        await measure("read_planned", lambda tx: store.read_planned(tx, window.id))
        await measure("close_window", lambda tx: store.close_window(tx, started, WindowState.ENDED))
        await measure("list_windows", lambda tx: store.list_windows(tx, WindowState.SCHEDULED, uuid.UUID(int=0), 50))
        assert await measure("delete_over", lambda tx: store.delete_over(tx, 86_400.0, 100)) == 100

    run_with(database_url, way)
    beyond = {
        f"{step}: {table}": rows
        for step, tables in read.items()
        for table, rows in tables.items()
        if rows > ROWS_MAX and (step, table) not in COUNTED
    }
    assert beyond == {}


COUNTED = {("insert_window", "maintenance_windows")}
"""A commit counts the open windows, which `BERTH_MAINTENANCE_WINDOWS_MAX` bounds."""
