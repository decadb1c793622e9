"""The public API's role touches only rows of the tenants that its transaction names (migrations/policies.sql; decision 0025)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import psycopg.conninfo
import pytest
from psycopg import errors, sql

import migrations
from migrations.privileges import apply_privileges
from migrations.roles import Role
from orchestrator.database.calls import CallGroup
from orchestrator.database.row_security import PLATFORM, tenants_setting
from orchestrator.database.transactions import Database
from orchestrator.operations.execution import Result
from orchestrator.placement.store import placing
from orchestrator.problems import Problem, Unforeseen
from orchestrator.webhooks.store import webhooks as webhook_store
from tests.databases import as_role
from tests.placement.fleet import Fleet, create_all, create_of, working
from tests.support.creating import body_of
from tests.support.rows import ALLOCATION, FIRST, OTHER, SECOND, TENANT, Row, ignore_triggers, insert, number

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "decisions" / "0025-row-level-security.md"
HOOK = number(16)
COLUMNS = {
    "allocations": "tenant_id", "api_keys": "tenant_id", "archived_allocations": "tenant_id", "balances": "tenant_id",
    "console_sessions": "tenant_id", "fault_reports": "tenant_id", "kv_keys": "namespace",
    "kv_namespaces": "id", "ledger": "tenant_id", "metering_intervals": "tenant_id", "networks": "tenant_id",
    "notification_subscriptions": "scope", "operations": "scope", "reservations": "tenant_id", "retention_policies": "scope",
    "ssh_keys": "tenant_id", "tenant_invitations": "tenant_id", "tenant_members": "tenant_id", "webhooks": "tenant_id",
    "wipe_certificates": "tenant_id",
}  # fmt: skip
"""By table with a policy: the column of the tenant."""
CHILDREN = {
    "webhook_deliveries": ("webhook_id", {TENANT: HOOK, OTHER: OTHER}),
    "network_addresses": ("allocation_id", {TENANT: ALLOCATION, OTHER: OTHER}),
    "published_ports": ("allocation_id", {TENANT: ALLOCATION, OTHER: OTHER}),
    "allocation_timeline": ("allocation_id", {TENANT: ALLOCATION, OTHER: OTHER}),
}
"""By table with a policy of its parent's: the column of the parent, and each tenant's parent."""
REFERRED = {"networks": "networks_pkey", "network_addresses": "network_addresses_pkey"}
NOT_WRITTEN = (
    "archived_allocations",
    "metering_intervals",
    "wipe_certificates",
    "networks",
    "network_addresses",
    "published_ports",
)
MORE: dict[str, Row] = {
    "api_keys": {"role": "tenant"},
    "archived_allocations": {"allocation_id": OTHER},
    "webhooks": {"id": OTHER},
    "metering_intervals": {"allocation_id": OTHER},
}
_POLICIES = """
select c.relname, p.polname, p.polcmd::text, p.polpermissive, p.polroles::regrole[]::text[]
from pg_policy p join pg_class c on c.oid = p.polrelid where c.relrowsecurity
"""
_OF_TENANTS = """
select distinct table_name::text from information_schema.columns join pg_class c on c.relname = table_name
where c.relkind in ('r', 'p') and not c.relispartition
  and table_schema = 'public' and column_name in ('tenant_id', 'scope', 'namespace') order by 1
"""
_CATALOGUE = "select oid, xmin::text from pg_policy union all select oid, xmin::text from pg_class order by 1"


def row_of(table: str, tenant: str) -> Row:
    """A row of this tenant's; the two tenants' rows have no key in common."""
    row = {**FIRST[table], **({} if table != "api_keys" else MORE[table])}
    if tenant == OTHER:
        row |= {**SECOND.get(table, {}), **MORE.get(table, {})}
    if table in CHILDREN:
        column, parents = CHILDREN[table]
        return row | {column: parents[tenant]}
    return row | {COLUMNS[table]: tenant}


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection, after a row of each of two tenants in each table."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        ignore_triggers(connection)
        for table in (*COLUMNS, *CHILDREN):
            for tenant in (TENANT, OTHER):
                insert(connection, table, **row_of(table, tenant))
        # Rows that refer to one another can be deleted one table at a time here.
        for table, key in REFERRED.items():
            connection.execute(f"alter table {table} drop constraint {key} cascade".encode())
        yield connection


@contextmanager
def naming(url: str, tenants: str | None) -> Iterator[psycopg.Connection[Any]]:
    """A transaction of the public API's role that names these tenants; it is rolled back."""
    with psycopg.connect(as_role(url, Role.PUBLIC_API)) as connection:
        if tenants is not None:
            connection.execute("select set_config('berth.tenants', %s, true)", (tenants,))
        yield connection
        connection.rollback()


def seen(connection: psycopg.Connection[Any], table: str) -> set[str]:
    """Whose rows a statement without a filter returns."""
    column = COLUMNS.get(table) or CHILDREN[table][0]
    found = connection.execute(sql.SQL("select {} from {}").format(sql.Identifier(column), sql.Identifier(table)))
    whose = {parent: tenant for tenant, parent in CHILDREN[table][1].items()} if table in CHILDREN else {}
    return {whose.get(str(one), str(one)) for (one,) in found.fetchall()}


def may(connection: psycopg.Connection[Any], table: str, right: str) -> bool:
    """Whether the role has this right on the table (migrations/privileges.sql)."""
    row = connection.execute("select has_table_privilege(%s, %s)", (table, right)).fetchone()
    assert row is not None
    return bool(row[0])


@pytest.mark.parametrize("table", [*COLUMNS, *CHILDREN])
def test_a_statement_without_a_filter_reads_only_rows_of_the_named_tenants(
    database_url: str, owner: psycopg.Connection[Any], table: str
) -> None:
    del owner
    named: dict[str | None, set[str]] = {
        None: set(), "": set(), "{}": set(), PLATFORM: {TENANT, OTHER},
        tenants_setting([UUID(TENANT)]): {TENANT}, tenants_setting([UUID(OTHER)]): {OTHER},
        tenants_setting([UUID(TENANT), UUID(OTHER)]): {TENANT, OTHER}, tenants_setting([UUID(number(77))]): set(),
    }  # fmt: skip
    found: dict[str | None, set[str]] = {}
    for tenants in named:
        with naming(database_url, tenants) as connection:
            found[tenants] = seen(connection, table)
    assert found == named


@pytest.mark.parametrize("table", [*COLUMNS, *CHILDREN])
def test_a_statement_without_a_filter_changes_only_rows_of_the_named_tenants(
    database_url: str, owner: psycopg.Connection[Any], table: str
) -> None:
    del owner
    column, name = sql.Identifier(COLUMNS.get(table) or CHILDREN[table][0]), sql.Identifier(table)
    statements = {
        "update": sql.SQL("update {} set {} = {}").format(name, column, column),
        "delete": sql.SQL("delete from {}").format(name),
    }
    changed: dict[tuple[str, str | None], int] = {}
    expected: dict[tuple[str, str | None], int] = {}
    for right, statement in statements.items():
        for tenants, number_ in ((tenants_setting([UUID(TENANT)]), 1), (None, 0)):
            with naming(database_url, tenants) as connection:
                if may(connection, table, right):
                    changed[right, tenants] = connection.execute(statement).rowcount
                    expected[right, tenants] = number_
    assert changed == expected


@pytest.mark.parametrize("table", [table for table in (*COLUMNS, *CHILDREN) if table != "allocation_timeline"])
def test_a_row_of_a_tenant_that_is_not_named_is_not_written(
    database_url: str, owner: psycopg.Connection[Any], table: str
) -> None:
    column = sql.Identifier(COLUMNS.get(table) or CHILDREN[table][0])
    others = row_of(table, OTHER)[COLUMNS.get(table) or CHILDREN[table][0]]
    owner.execute(sql.SQL("delete from {} where {} = %s").format(sql.Identifier(table), column), (others,))
    refused = 0
    for tenants in (tenants_setting([UUID(TENANT)]), None):
        with naming(database_url, tenants) as connection:
            if may(connection, table, "insert"):
                with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
                    insert(connection, table, **row_of(table, OTHER))
                refused += 1
        with naming(database_url, tenants_setting([UUID(TENANT)])) as connection:
            if may(connection, table, "update"):
                with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
                    connection.execute(
                        sql.SQL("update {} set {} = %s").format(sql.Identifier(table), column), (others,)
                    )
                refused += 1
    assert refused > 0 or table in NOT_WRITTEN, "the role only reads or deletes"


def test_the_name_ends_with_the_transaction(database_url: str, owner: psycopg.Connection[Any]) -> None:
    del owner
    with psycopg.connect(as_role(database_url, Role.PUBLIC_API)) as connection:
        connection.execute("select set_config('berth.tenants', %s, true)", (PLATFORM,))
        assert seen(connection, "ssh_keys") == {TENANT, OTHER}
        connection.commit()
        assert seen(connection, "ssh_keys") == set()


@pytest.mark.parametrize("role", [Role.WORKER, Role.OPERATOR, Role.READ_ONLY])
def test_other_roles_see_the_rows_of_all(database_url: str, owner: psycopg.Connection[Any], role: Role) -> None:
    del owner
    with psycopg.connect(as_role(database_url, role)) as connection:
        for table in ("ssh_keys", "allocations", "notification_subscriptions"):
            assert seen(connection, table) == {TENANT, OTHER}, table


def test_a_role_with_the_rights_of_both_listeners_is_limited(database_url: str, owner: psycopg.Connection[Any]) -> None:
    with owner.transaction(force_rollback=True):
        owner.execute(f"create role berth_both in role {Role.PUBLIC_API}, {Role.NODE_API}".encode())
        owner.execute("set local role berth_both")
        assert seen(owner, "allocations") == set()
        owner.execute("select set_config('berth.tenants', %s, true)", (tenants_setting([UUID(TENANT)]),))
        assert seen(owner, "allocations") == {TENANT}


def test_the_page_lists_the_policies_and_repeating_changes_nothing(
    database_url: str, owner: psycopg.Connection[Any]
) -> None:
    found = owner.execute(_POLICIES).fetchall()
    limited = {table for table, name, *_ in found if name == "own_tenant"}
    assert limited == COLUMNS.keys() | CHILDREN.keys()
    assert {(*one[1:2], *one[3:]) for one in [(t, n, c, p, tuple(r)) for t, n, c, p, r in found]} == {
        ("everyone", True, ("-",)), ("own_tenant", False, (Role.PUBLIC_API.value,)),
    }  # fmt: skip
    assert {table for table, name, command, *_ in found if name == "own_tenant" and command != "*"} == {
        "allocation_timeline"
    }
    covered = PAGE.read_text().partition("### Tables with a policy")[2].partition("\n###")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", covered, re.M)) == sorted(limited), "each once"
    without = PAGE.read_text().partition("### Tables without a policy")[2].partition("\n###")[0]
    reasoned = re.findall(r"`([\w*]+)`", without)
    left = [one for (one,) in owner.execute(_OF_TENANTS) if one not in limited]
    assert [table for table in left if not any(fnmatch(table, name) for name in reasoned)] == [], "each has its reason"
    before = owner.execute(_CATALOGUE).fetchall()
    assert apply_privileges(owner)
    assert owner.execute(_CATALOGUE).fetchall() == before
    owner.execute("drop policy own_tenant on ssh_keys")
    owner.execute("comment on policy own_tenant on webhooks is 'an earlier text'")
    owner.execute("alter table nodes enable row level security; create policy everyone on nodes using (true)")
    owner.execute(f"create policy own_tenant on nodes as restrictive to {Role.PUBLIC_API} using (false)".encode())
    migrations.upgrade(database_url)
    assert sorted(owner.execute(_POLICIES).fetchall()) == sorted(found)


def _place_together(url: str, fleet: Fleet, count: int = 2) -> tuple[list[Any], list[Result]]:
    tenants = [fleet.tenant() for _ in range(count)]
    creates = [create_of(tenant) for tenant in tenants]

    async def send() -> list[Result]:
        async with working(as_role(url, Role.PUBLIC_API)) as (context, catalogue):
            return await create_all(context, catalogue, creates)

    return tenants, asyncio.run(send())


def test_a_batch_of_two_tenants_creates_for_each_its_own(database_url: str) -> None:
    tenants, results = _place_together(database_url, Fleet(database_url, slice_nodes=1))
    made = [body_of(result) for result in results]
    for own, other, body in zip(tenants, reversed(tenants), made, strict=True):
        with naming(database_url, tenants_setting([own.id])) as connection:
            assert [str(id_) for (id_,) in connection.execute("select id from allocations")] == [body["allocation_id"]]
            assert seen(connection, "operations") == {str(own.id)}
            named = connection.execute("select 1 from allocations where tenant_id = %s", (other.id,))
            assert named.fetchall() == []


def test_a_batch_that_names_one_of_its_tenants_writes_nothing_of_the_other(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    first: list[UUID] = []

    def name_the_first(tenants: Any) -> str:
        first[:] = first or list(tenants)[:1]
        return tenants_setting(first)

    monkeypatch.setattr(placing, "tenants_setting", name_the_first)
    tenants, results = _place_together(database_url, fleet)
    assert body_of(results[0])["allocation_id"]
    assert isinstance(results[1], Problem)
    assert results[1].code == Unforeseen().code
    assert fleet.one("select array_agg(distinct tenant_id) from allocations") == [tenants[0].id]
    assert fleet.one("select array_agg(distinct scope) from operations") == [tenants[0].id]


def test_a_list_whose_filter_was_removed_returns_only_the_callers_rows(
    database_url: str, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    del owner
    tenant = UUID(TENANT)
    guard = "and w.tenant_id is not distinct from cast(:tenant_id as uuid) "
    assert guard in webhook_store._LIST, "this test removes the filter of the statement that runs"
    monkeypatch.setattr(webhook_store, "_LIST", webhook_store._LIST.replace(guard, ""))

    async def lists() -> list[set[str]]:
        async with working(as_role(database_url, Role.PUBLIC_API)) as (context, _):
            found = []
            for database in (context.database.for_tenants(tenant), context.database.for_platform(), context.database):
                async with database.reading() as reading:
                    rows = await webhook_store.list_webhooks(reading, tenant, UUID(int=0), 10)
                    found.append({str(row.id) for row in rows})
            return found

    assert asyncio.run(lists()) == [{HOOK}, {HOOK, OTHER}, set()]


@asynccontextmanager
async def counting_round_trips(url: str) -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a relay to the server, and the senders, one entry for each change of direction."""
    directions: list[str] = []
    parameters = psycopg.conninfo.conninfo_to_dict(url)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: str) -> None:
        while data := await reader.read(65_536):
            if directions[-1:] != [sender]:
                directions.append(sender)
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(str(parameters["host"]), int(str(parameters["port"])))
        await asyncio.gather(pump(reader, to_server, "client"), pump(from_server, writer, "server"))

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        yield url.replace(f":{parameters['port']}/", f":{port}/"), directions


def test_naming_the_tenants_costs_no_round_trip(database_url: str) -> None:
    async def act(database: Database, kind: str) -> None:
        # Each statement runs so seldom that it is not prepared, which takes a separate round trip.
        if kind == "call":
            async with database.function_call(CallGroup.CREATES) as call:
                assert await call.value("select %(one)s::integer", {"one": 1}) == 1
        elif kind == "transaction":
            async with database.transaction() as tx:
                await tx.execute("select 1")
                await tx.execute("select 2")
        elif kind == "reading":
            async with database.reading() as reading:
                await reading.execute("select 3")
        else:
            async with database.read_one() as reading:
                await reading.execute("select 4")

    async def trips() -> dict[tuple[str, bool], int]:
        found = {}
        async with counting_round_trips(database_url) as (url, directions), working(url, pool_size=1) as (context, _):
            for kind in ("call", "read_one", "reading", "transaction"):
                for named in (False, True):
                    database = context.database.for_tenants(UUID(TENANT)) if named else context.database
                    await act(database, kind)  # connects
                    directions.clear()
                    await act(database, kind)
                    found[kind, named] = directions.count("client")
        return found

    expected = {"call": 1, "read_one": 1, "reading": 3, "transaction": 4}
    assert asyncio.run(trips()) == {(kind, named): count for kind, count in expected.items() for named in (False, True)}
