"""Each process connects as a role with the rights that docs/reference/access/database-roles.md lists, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

import migrations
from migrations.privileges import apply_privileges
from migrations.roles import Role
from tests.databases import as_role

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "access" / "database-roles.md"
LETTERS = {"SELECT": "s", "INSERT": "i", "UPDATE": "u", "DELETE": "d", "USAGE": "x", "EXECUTE": "x"}
RUN_AS_OWNER = {
    "audit_advance",
    "audit_forget",
    "audit_stream_begin",
    "claim_freed_units",
    "expire_holds",
    "lock_overdue_holds",
    "log_accept_timeline",
    "log_skip_versions",
    "log_extend",
    "log_open_epoch",
    "log_resume_timeline",
    "log_truncate",
    "restore_begin",
    "restore_close",
    "restore_end_runs",
    "restore_keep_node",
    "restore_close_nodes",
    "restore_note_ends",
    "restore_note_export",
    "restore_report_losses",
    "restore_revoke",
    "restore_adopt",
    "restore_revoke_agents",
    "restore_adopt_agents",
    "restore_adopt_passwords",
    "note_certificate",
    "note_site_certificate",
    "restore_waive_export",
    "restore_renew_fences",
    "restore_end_sessions",
    "restore_raise_sequences",
    "restore_skip_versions",
}

_GRANTED = """
select c.relname, a.grantee::regrole::text, a.privilege_type from pg_class c cross join lateral aclexplode(c.relacl) a
where c.relnamespace = 'public'::regnamespace and a.grantee <> c.relowner
union all
select p.proname, case a.grantee when 0 then 'public' else a.grantee::regrole::text end, a.privilege_type
from pg_proc p cross join lateral aclexplode(p.proacl) a
where p.pronamespace = 'public'::regnamespace and a.grantee <> p.proowner
"""
_COLUMNS = """
select c.relname, a.attname, coalesce(x.grantee::regrole::text, ''), coalesce(x.privilege_type, '')
from pg_class c join pg_attribute a on a.attrelid = c.oid left join lateral aclexplode(a.attacl) x on true
where c.relnamespace = 'public'::regnamespace and a.attnum > 0 and c.relkind in ('r', 'p', 'v') and not a.attisdropped
"""
_THINGS = """
select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v') and not relispartition
"""
_AS_OWNER = "select proname, proconfig::text from pg_proc where pronamespace = 'public'::regnamespace and prosecdef"
_CATALOGUE = """
select c.oid, c.xmin::text, '' from pg_class c union all select p.oid, p.xmin::text, '' from pg_proc p
union all select a.attrelid, a.xmin::text, a.attname from pg_attribute a order by 1, 3
"""


def listed_rights() -> dict[tuple[str, str], str]:
    """By thing and role: the letters that the page lists; a thing without a letter is there under the role ''."""
    found: dict[tuple[str, str], str] = {}
    header: list[str] = []
    for line in PAGE.read_text().partition("\n## Rights\n")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("| relation"):
            header = cells
        elif line.startswith("| `"):
            found[cells[0], ""] = ""
            found |= {
                (cells[0], f"berth_{role}"): letters
                for role, letters in zip(header[1:], cells[1:], strict=True)
                if letters
            }
    return found


def hidden_columns() -> dict[str, set[str]]:
    """By relation: the columns that readers do not see, as the page lists them."""
    text = PAGE.read_text().partition("\n## Columns that readers do not see\n")[2]
    return {
        name: set(re.findall(r"`(\w+)`", columns)) for name, columns in re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.M)
    }


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection as the role that migrated."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def test_each_role_has_exactly_the_rights_that_the_page_lists(owner: psycopg.Connection) -> None:
    granted: dict[tuple[str, str], set[str]] = {}
    for thing, role, right in owner.execute(_GRANTED).fetchall():
        granted.setdefault((thing, role), set()).add(LETTERS.get(str(right), str(right)))
    columns: dict[tuple[str, str], set[str]] = {}
    every: dict[str, set[str]] = {}
    for relation, column, role, right in owner.execute(_COLUMNS).fetchall():
        every.setdefault(relation, set()).add(column)
        if role:
            assert (role, right) == (Role.READ_ONLY, "SELECT")
            columns.setdefault((relation, role), set()).add(column)
    listed = listed_rights()
    whole = {key: set(letters) for key, letters in listed.items() if letters and letters != "c"}
    assert granted == whole
    assert columns == {
        (relation, role): every[relation] - hidden_columns()[relation]
        for (relation, role), letters in listed.items()
        if letters == "c"
    }
    assert {relation for relation, _ in columns} == hidden_columns().keys()
    assert {name for (name,) in owner.execute(_THINGS)} <= {thing for thing, _ in listed}


def test_functions_that_run_as_the_owner_have_a_fixed_search_path(owner: psycopg.Connection) -> None:
    found: dict[str, str] = dict(owner.execute(_AS_OWNER).fetchall())
    assert found.keys() == RUN_AS_OWNER
    assert {name for name, settings in found.items() if '"search_path=public, pg_temp"' in settings} == RUN_AS_OWNER


@pytest.mark.parametrize("role", Role)
def test_a_role_owns_nothing_and_is_a_member_of_none(owner: psycopg.Connection, role: Role) -> None:
    flags = "select rolsuper or rolcreatedb or rolcreaterole or rolbypassrls or rolreplication from pg_roles where rolname = %s"
    assert owner.execute(flags, (role,)).fetchone() == (False,)
    owned = "select count(*) from pg_shdepend where refobjid = %s::regrole and deptype = 'o'"
    assert owner.execute(owned, (role,)).fetchone() == (0,)
    member = "select count(*) from pg_auth_members where member = %s::regrole or roleid = %s::regrole"
    assert owner.execute(member, (role, role)).fetchone() == (0,)


OF_NO_ROLE = (
    "truncate nodes", "drop table nodes", "alter table nodes add column x text",
    "alter table audit_chain disable trigger all", "alter table ledger disable trigger ledger_never_changes",
    "drop trigger audit_chain_keeps on audit_chain", "set session_replication_role = replica", "create table planted ()",
    "create function planted() returns integer language sql as 'select 1'",
    "create or replace function log_extend(p_version bigint) returns integer language sql as 'select 1'",
    "alter function audit_advance(integer) set search_path = planted",
    "create trigger planted before insert on nodes for each row execute function refuse_change()",
    "update ledger set tenant_id = tenant_id", "delete from ledger", "insert into audit_chain (sequence) values (1)",
    "update audit_chain set code = ''", "delete from audit_chain", "update audit_pending set code = ''",
    "update audit_anchor set sequence = 1", "delete from audit_pending", "update audit_head set sequence = 0", "delete from log",
    "update log set payload = '{}'",
    "select from log_from_0", "delete from log_from_0", "update alembic_version set version_num = ''",
    "delete from sql_functions", "update function_generation set generation = 1", "create role planted",
    "copy nodes to program 'cat'",
)  # fmt: skip
OF_ROLE: dict[Role, tuple[str, ...]] = {
    Role.PUBLIC_API: (
        "insert into node_certificates default values", "insert into node_tasks default values", "delete from allocations",
        "delete from nodes", "select from audit_head", "select log_truncate(1, 0)", "select log_accept_timeline(1, 0)",
        "select log_resume_timeline(0, null)", "select log_open_epoch()",
        "insert into audit (action) values ('')", "select audit_forget(1)", "insert into archive_segments default values",
    ),
    Role.NODE_API: (
        "insert into allocations default values", "select secret_hash from api_keys", "select from operations",
        "select from webhooks", "select from enrolment_tokens", "select from kv_keys", "select from reservations",
        "insert into node_certificates default values", "update node_certificates set revoked_at = null",
        "update node_tpms set ak_public = ''",
        "insert into node_tpms default values", "insert into node_tasks default values",
        "insert into claims default values", "insert into ledger default values",
        "insert into nodes default values", "select audit_advance(1)", "select nextval('fences')", "select from log",
    ),
    Role.ISSUER: (
        "select from api_keys", "select from allocations", "insert into certificate_requests default values",
        "update node_certificates set revoked_at = null", "select from enrolment_tokens", "insert into outbox default values",
    ),
    Role.WORKER: (
        "select from api_keys", "select from enrolment_tokens", "select keys from webhooks", "select from webhook_deliveries",
        "insert into nodes default values", "insert into node_certificates default values", "select from certificate_requests",
        "insert into tenants default values", "update kv_keys set value = ''", "insert into log default values",
        "select log_extend(1)", "select log_accept_timeline(1, 0)", "delete from allocations", "select audit_forget(1)",
    ),
    Role.WEBHOOKS: (
        "select secret_hash from api_keys", "select from allocations", "select from node_tasks", "select from kv_keys",
        "select from operations", "insert into webhooks default values", "update tenants set name = ''",
        "insert into log default values", "select from audit", "select audit_advance(1)", "select nextval('fences')",
    ),
    Role.AUDIT_STREAM: (
        "insert into audit_streams (name, sequence) values ('nats', 0)", "delete from audit_streams", "select from audit_pending",
        "select audit_advance(1)", "select audit_forget(1)", "select from audit_anchor", "select from log", "select from tenants",
        "select from api_keys", "select from operations", "select from webhooks", "insert into audit (action) values ('')",
    ),
    Role.RELAY: (
        "update allocations set name = ''", "select from allocations", "select from api_keys", "select from nodes",
        "insert into outbox default values", "select from webhooks", "select from audit",
        "update log_stream set first_version = 1", "select log_truncate(1, 0)", "select log_accept_timeline(1, 0)",
    ),
    Role.OPERATOR: (
        "insert into allocations default values", "update claims set units = units", "delete from nodes",
        "update api_keys set revoked_at = null", "insert into ledger default values", "insert into log default values",
        "delete from archive_segments", "select log_truncate(1, 0)", "select nextval('fences')",
    ),
    Role.READ_ONLY: (
        "insert into regions default values", "update nodes set state = state", "delete from operations",
        "select secret_hash from api_keys", "select token_hash from enrolment_tokens", "select user_data from allocations",
        "select envelope from node_tasks", "select body from operations", "select keys from webhooks", "select url from webhooks",
        "select value from kv_keys", "select template from reservations", "select payload from log", "select payload from outbox",
        "select * from allocations", "select nextval('fences')", "select audit_advance(1)", "select log_extend(1)",
        "select from nodes for update",
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", Role)
def test_what_a_role_must_not_do_is_refused(database_url: str, role: Role) -> None:
    allowed = []
    with closing(psycopg.connect(as_role(database_url, role), autocommit=True)) as connection:
        for statement in (*OF_NO_ROLE, *OF_ROLE[role]):
            try:
                connection.execute(statement.encode())
            except errors.InsufficientPrivilege:
                continue
            except psycopg.Error as error:
                statement = f"{statement}: {error}"
            allowed.append(statement)
    assert allowed == []


def test_the_processes_run_the_functions_of_the_owner(database_url: str, owner: psycopg.Connection) -> None:
    (versions,) = owner.execute("select partition_versions from log_head").fetchone() or (0,)
    with closing(psycopg.connect(as_role(database_url, Role.RELAY), autocommit=True)) as relay:
        assert relay.execute("select log_extend(%s)", (versions * 10,)).fetchone() != (0,)
        assert relay.execute("select log_advance(10)").fetchone() == (0,)
    with closing(psycopg.connect(as_role(database_url, Role.WORKER), autocommit=True)) as worker:
        assert worker.execute("select audit_advance(10)").fetchone() == (0,)
        assert worker.execute("select outcome from log_truncate(1, 0)").fetchone() == ("kept",)
        assert worker.execute("select nextval('fences')").fetchone() is not None


def test_a_reader_sees_what_holds_no_secret(database_url: str) -> None:
    with closing(psycopg.connect(as_role(database_url, Role.READ_ONLY), autocommit=True)) as reader:
        assert reader.execute("select id, state, tenant_id, name from allocations").fetchall() == []
        assert reader.execute("select id, prefix, role from api_keys").fetchall() == []
        assert reader.execute("select * from ledger").fetchall() == []
        assert reader.execute("select * from audit").fetchall() == []


def test_a_new_table_is_closed_and_repeating_changes_nothing(database_url: str, owner: psycopg.Connection) -> None:
    before = set(owner.execute(_GRANTED).fetchall()), set(owner.execute(_COLUMNS).fetchall())
    owner.execute("create table added (x integer)")
    owner.execute("grant select on added to berth_worker")
    owner.execute("grant truncate on nodes to berth_worker")
    owner.execute("revoke insert on allocations from berth_public_api")
    owner.execute("grant select (secret_hash) on api_keys to berth_read_only")
    owner.execute("grant execute on function log_truncate(double precision, bigint) to berth_relay")
    migrations.upgrade(database_url)
    owner.execute("drop table added")
    assert (set(owner.execute(_GRANTED).fetchall()), set(owner.execute(_COLUMNS).fetchall())) == before
    rows = owner.execute(_CATALOGUE).fetchall()
    assert apply_privileges(owner)
    assert rows == owner.execute(_CATALOGUE).fetchall()
