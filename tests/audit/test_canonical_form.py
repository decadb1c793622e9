"""The client computes the same hashes as the database, whatever the members of a row contain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from berth.client import AuditEntry
from berth.client.audit.chain import canonical_form, entry_hash
from berth.local.servers import LocalPostgres
from orchestrator.database.metadata import METADATA
from tests.databases import copied_database

INSERT = """
insert into audit_pending (at, principal_kind, principal_id, role, tenant_id, source, user_agent, action, subject, status, code,
                           operation_key, request_id, correlation_id, detail)
values (%(at)s, 'tenant', %(principal_id)s, %(role)s, %(tenant_id)s, %(source)s, %(user_agent)s, %(action)s, %(subject)s,
        %(status)s, %(code)s, %(operation_key)s, %(request_id)s, %(correlation_id)s, %(detail)s)
"""
CHAINED = """
select c.*, audit_canonical(sequence, recorded_at, row(id, at, principal_kind, principal_id, role, tenant_id, source, user_agent,
    action, subject, status, code, operation_key, request_id, correlation_id, detail)::audit_pending) as canonical
from audit_chain c order by sequence desc limit 1
"""
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
DETAILS = st.dictionaries(
    TEXTS,
    st.recursive(
        st.none() | st.booleans() | NUMBERS | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
ROWS = st.fixed_dictionaries(
    dict.fromkeys(("principal_id", "action", "subject", "code"), TEXTS)
    | dict.fromkeys(("role", "source", "user_agent", "operation_key", "request_id"), st.none() | TEXTS)
    | {
        "at": st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
        "tenant_id": st.none() | st.uuids(), "correlation_id": st.none() | st.uuids(),
        "status": st.none() | st.integers(100, 599), "detail": DETAILS.map(json.dumps),
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def database(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A database for this module."""
    with (
        copied_database(postgres_server, migrated_template) as url,
        psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection,
    ):
        yield connection


def _sent(row: dict[str, Any]) -> AuditEntry:
    """The row as a client receives it."""
    row["principal"] = {"kind": row.pop("principal_kind"), "id": row.pop("principal_id"), "role": row.pop("role")}
    row["hash"] = bytes(row["hash"]).hex()
    return AuditEntry.model_validate_json(json.dumps(row, default=str))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(row=ROWS)
def test_the_client_computes_the_hash_of_any_row(
    database: psycopg.Connection[dict[str, Any]], row: dict[str, Any]
) -> None:
    before = database.execute("select hash from audit_head").fetchone()
    assert before is not None
    database.execute(INSERT, row)
    database.execute("select audit_advance(10)")
    stored = database.execute(CHAINED).fetchone()
    assert stored is not None
    canonical = stored.pop("canonical")
    entry = _sent(stored)
    assert canonical_form(entry) == canonical
    assert entry_hash(bytes(before["hash"]), entry).hex() == entry.hash


def test_a_client_sees_every_column_of_the_chain() -> None:
    members = set(AuditEntry.model_fields) - {"principal"} | {"principal_kind", "principal_id", "role"}
    assert members == set(METADATA.tables["audit_chain"].columns.keys())
