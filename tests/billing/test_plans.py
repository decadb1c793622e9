"""Evaluating balances reads what is due and what runs, however many other tenants there are: counted, not timed.

By a session that planned everything while the tables were empty, with 50,000 tenants since and a past of metered intervals.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.billing.commands import evaluate_balance
from orchestrator.billing.queries import find_balance, find_due_balances, find_late_seconds, find_running_allocations
from orchestrator.operations.execution import Context
from tests.allocations.driving import run_with
from tests.allocations.seeding import add_tenant, connect
from tests.database.counting import Counted
from tests.databases import copied_database

TENANTS = 50_000
DUE, RUNNING = 20, 5
TABLES = ("balances", "tenants", "metering_intervals", "ledger", "allocations")
LINE = """
insert into ledger (tenant_id, kind, amount_micro_units, actor_id, operation_key) values (:tenant_id, 'top_up', 1, 'a', :key)
"""
PAST = """
insert into tenants (name) select 'tenant ' || n from generate_series(1, %(tenants)s) n;
update balances set prepaid = true, settled_micro_units = 1e15::numeric, look_at = clock_timestamp() + interval '1 hour'
where tenant_id in (select id from tenants where name like 'tenant %%');
insert into metering_intervals
select gen_random_uuid(), t.id, 'a', 1, 1, 1, now() - interval '2 hours', 1, now() - interval '1 hour', 2
from tenants t where t.name like 'tenant %%' limit 30000;
insert into metering_intervals
select gen_random_uuid(), %(busy)s, 'a', 1, 1, 1, now() - interval '2 hours', 1, now() - interval '1 hour', 2
from generate_series(1, 20000);
insert into metering_intervals
select gen_random_uuid(), t.id, 'a', 1, 1, 1, now(), 1, null, null from tenants t where t.name like 'tenant %%' limit 20000;
insert into metering_intervals
select gen_random_uuid(), %(busy)s, 'a', 1, 1, 1, now(), 1, null, null from generate_series(1, %(running)s);
update balances set look_at = clock_timestamp() + interval '1 hour' where prepaid;
update balances set look_at = clock_timestamp() - interval '1 minute'
where tenant_id in (select id from tenants where name like 'tenant 77%%' order by name limit %(due)s);
"""


def fill(database: psycopg.Connection[Any], busy: uuid.UUID) -> None:
    """So many tenants, a past, and what runs."""
    for statement in PAST.split(";"):
        if statement.strip():
            values = {"tenants": TENANTS, "busy": busy, "due": DUE, "running": RUNNING}
            database.execute(statement.encode(), values)


@pytest.fixture(scope="module")
def crowded(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[tuple[str, uuid.UUID]]:
    """A database with one prepaid tenant, the busy one, and no others yet."""
    with copied_database(postgres_server, migrated_template) as url:
        with connect(url) as database:
            busy = add_tenant(database, "busy").tenant_id
            database.execute("update balances set prepaid = true, settled_micro_units = 1e15")
        yield url, busy


@pytest.mark.full
def test_a_look_reads_what_is_due_and_what_runs(crowded: tuple[str, uuid.UUID]) -> None:
    url, busy = crowded

    async def work(context: Context) -> None:
        ways: dict[str, tuple[int, Callable[[], Awaitable[Any]]]] = {
            "due": (2 * DUE, lambda: find_due_balances(context, DUE)),
            "late": (5, lambda: find_late_seconds(context)),
            "balance": (4 * RUNNING + 10, lambda: find_balance(context.database, busy)),
            "running": (4 * RUNNING + 10, lambda: find_running_allocations(context, busy, 100)),
            "look": (4 * RUNNING + 20, lambda: evaluate_balance(context, busy)),
        }
        for _, act in ways.values():
            for _ in range(6):  # by then a session has its plans, made while there was nothing
                await act()
        with connect(url) as watcher:
            watcher.execute("select meter('[]', '[]')")
            fill(watcher, busy)
            counted = Counted(context.database, watcher)
            for analysed in (False, True):
                if analysed:
                    watcher.execute("analyze")
                for name, (most, act) in ways.items():
                    found = await counted(act())
                    read = sum(counted.rows[table] for table in TABLES)
                    assert read <= most, (name, analysed, counted.rows)
                    assert name != "due" or len(found) == DUE

    run_with(url, work, pool_size=1)


def test_a_line_touches_the_balance_of_its_tenant_alone(crowded: tuple[str, uuid.UUID]) -> None:
    url, busy = crowded

    async def work(context: Context) -> None:
        async def pay(amount: int) -> None:
            async with context.database.transaction() as tx:
                await tx.execute(LINE, {"tenant_id": busy, "key": f"{amount}"})

        for amount in range(6):
            await pay(amount)
        with connect(url) as watcher:
            counted = Counted(context.database, watcher)
            await counted(pay(7))
        assert counted.rows["balances"] <= 4, counted.rows

    run_with(url, work, pool_size=1)
