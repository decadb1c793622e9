"""The role of the running processes writes rows and owns nothing: no process can change the schema, the audit or the ledger."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

import migrations
from migrations.privileges import apply_privileges
from tests.databases import as_process

ROWS = {"SELECT", "INSERT", "UPDATE", "DELETE"}
NARROWER = {
    "alembic_version": {"SELECT"}, "sql_functions": {"SELECT"}, "function_generation": {"SELECT"},
    "audit_pending": {"SELECT", "INSERT"}, "audit_chain": {"SELECT"}, "audit_head": {"SELECT"},
    "ledger": {"SELECT", "INSERT"}, "log": {"SELECT", "INSERT"},
}  # fmt: skip
RUN_AS_OWNER = {"audit_advance", "log_accept_timeline", "log_extend", "log_truncate"}

_GRANTED = """
select c.relname, c.relispartition,
       coalesce(array_agg(a.privilege_type) filter (where a.grantee = 'berth_process'::regrole), '{}')
from pg_class c left join lateral aclexplode(c.relacl) a on true
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') group by 1, 2
"""
_OF_OTHERS = """
select c.relname, a.privilege_type from pg_class c cross join lateral aclexplode(c.relacl) a
where c.relnamespace = 'public'::regnamespace and a.grantee not in (c.relowner, 'berth_process'::regrole)
"""
_AS_OWNER = "select proname, proconfig::text from pg_proc where pronamespace = 'public'::regnamespace and prosecdef"
_CALLERS = """
select proname, array_agg(a.grantee::regrole::text order by 1) from pg_proc p cross join lateral aclexplode(p.proacl) a
where p.pronamespace = 'public'::regnamespace and p.prosecdef and a.grantee <> p.proowner group by 1
"""


@pytest.fixture
def process(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection as the role of the processes."""
    with psycopg.connect(as_process(database_url), autocommit=True) as connection:
        yield connection


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection as the role that migrated."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def test_each_relation_has_exactly_its_rights(owner: psycopg.Connection) -> None:
    found = {name: (partition, set(rights)) for name, partition, rights in owner.execute(_GRANTED).fetchall()}
    assert NARROWER.keys() <= found.keys()
    wanted = {name: set() if partition else NARROWER.get(name, ROWS) for name, (partition, _) in found.items()}
    assert {name: rights for name, (_, rights) in found.items()} == wanted
    assert any(partition for partition, _ in found.values())
    assert owner.execute(_OF_OTHERS).fetchall() == []


def test_functions_that_run_as_the_owner_have_one_caller_and_a_fixed_search_path(owner: psycopg.Connection) -> None:
    assert dict(owner.execute(_AS_OWNER).fetchall()) == dict.fromkeys(RUN_AS_OWNER, '{"search_path=public, pg_temp"}')
    assert dict(owner.execute(_CALLERS).fetchall()) == {name: ["berth_process"] for name in RUN_AS_OWNER}


@pytest.mark.parametrize(
    "statement",
    [
        b"truncate nodes",
        b"drop table nodes",
        b"alter table nodes add column x text",
        b"alter table audit_chain disable trigger all",
        b"alter table ledger disable trigger ledger_never_changes",
        b"drop trigger audit_chain_keeps on audit_chain",
        b"set session_replication_role = replica",
        b"create table planted ()",
        b"create function planted() returns integer language sql as 'select 1'",
        b"create or replace function log_extend(p_version bigint) returns integer language sql as 'select 1'",
        b"alter function audit_advance(integer) set search_path = planted",
        b"create trigger planted before insert on nodes for each row execute function refuse_change()",
        b"update ledger set tenant_id = tenant_id",
        b"delete from ledger",
        b"insert into audit_chain (sequence) values (1)",
        b"update audit_chain set code = ''",
        b"delete from audit_chain",
        b"update audit_pending set code = ''",
        b"delete from audit_pending",
        b"update audit_head set sequence = 0",
        b"delete from log",
        b"update log set payload = '{}'",
        b"delete from log_from_0",
        b"update alembic_version set version_num = ''",
        b"delete from sql_functions",
        b"update function_generation set generation = 1",
        b"create role planted",
        b"copy nodes to program 'cat'",
    ],
)
def test_a_process_cannot(process: psycopg.Connection, statement: bytes) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        process.execute(statement)


def test_a_process_can_extend_the_log_and_chain_the_audit(process: psycopg.Connection) -> None:
    (versions,) = process.execute("select partition_versions from log_head").fetchone() or (0,)
    assert process.execute("select log_extend(%s)", (versions * 10,)).fetchone() != (0,)
    assert process.execute("select audit_advance(10)").fetchone() == (0,)
    assert process.execute("select outcome from log_truncate(1, 0)").fetchone() == ("kept",)
    assert process.execute("select nextval('fences')").fetchone() is not None


def test_a_new_table_has_its_rights_after_the_next_migration_and_repeating_changes_nothing(
    database_url: str, owner: psycopg.Connection
) -> None:
    owner.execute("create table added (x integer)")
    owner.execute("grant truncate on nodes to berth_process")
    migrations.upgrade(database_url)
    found = {name: set(rights) for name, _, rights in owner.execute(_GRANTED).fetchall()}
    assert found["added"] == found["nodes"] == ROWS
    rows = owner.execute("select oid, xmin from pg_class union all select oid, xmin from pg_proc order by 1").fetchall()
    assert apply_privileges(owner)
    assert (
        rows
        == owner.execute("select oid, xmin from pg_class union all select oid, xmin from pg_proc order by 1").fetchall()
    )
