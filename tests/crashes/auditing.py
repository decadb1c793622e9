"""What goes on while a process dies that writes queued rows of the audit, or chains them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from berth.client import Client, Forbidden
from berth.client.calls.keyvalue import write_key
from tests.crashes.plays import new_key
from tests.crashes.stage import Stage
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for
from tests.support.whole_stack import Tenant

ROWS = 10


def the_audit_is_chained(stage: Stage) -> Iterator[None]:
    """Rows that wait enter the chain, each once and without a gap, whatever happens meanwhile."""
    with psycopg.connect(stage.stack.endpoints.database_url, autocommit=True) as database:
        yield
        turn = uuid.uuid4()
        insert = "insert into audit (principal_kind, principal_id, action, subject) values ('system', 'test', 'thing.turn', %s)"
        for number in range(ROWS):
            database.execute(insert, (f"{turn}/{number}",))
        count = "select count(sequence), count(*) from audit where subject like %s"

        def chained() -> bool:
            return database.execute(count, (f"{turn}/%",)).fetchone() == (ROWS, ROWS)

        wait_for(chained, "every row is in the chain once")
        gaps = "select count(*) - max(sequence) from audit_chain"
        assert database.execute(gaps).fetchone() == (0,), "the chain has no gap"


def the_audit_is_read(stage: Stage) -> Iterator[None]:
    """A list chains what waits; it is repeated until it has a response, and contains each write before it once."""
    tenant = stage.tenant()
    yield
    for _ in range(3):
        key = _written(tenant)
        listed = [entry.operation_key for entry in tenant.client.iterate_own_audit(action="transaction.commit")]
        assert listed.count(key) == 1


def a_break_glass_key_is_used(stage: Stage) -> Iterator[None]:
    """A use has one event and one audit row, which are there before its effect, whatever happens to the answer."""
    made = stage.admin.create_api_key(name=new_key(), role="admin", break_glass=True)
    yield
    name, subject = new_key(), f"api-keys/{made.id}"
    with Client(stage.stack.endpoints.api_url, made.key, retry_seconds=WAIT_SECONDS_MAX) as emergency:
        tenants = [emergency.create_tenant(name=name, idempotency_key=name) for _ in range(2)]
    assert tenants[0] == tenants[1]
    events = """
        select count(*) from (select event_type, subject from outbox union all select event_type, subject from log) e
        where event_type = 'key.break_glass_used' and subject = %s
    """
    assert stage.execute(events, subject) == [(1,)]
    rows = "select count(*) from audit where action = 'api_key.break_glass_use' and subject = %s"
    assert stage.execute(rows, subject) == [(1,)]


def refusals_are_recorded(stage: Stage) -> Iterator[None]:
    """Reads that are refused, beside writes: each write has one row; of the refusals only those of the dead queue have none."""
    tenant = stage.tenant()
    yield
    asked: list[str] = []
    written = []

    def recorded() -> bool:
        node = uuid.uuid4()
        with pytest.raises(Forbidden):
            tenant.client.get_node(node)
        asked.append(f"nodes/{node}")
        return any(_rows_about(stage, subject) for subject in asked[earlier:])

    for _ in range(3):
        earlier = len(asked)
        written.append(_written(tenant))
        wait_for(recorded, "a refusal of this round is recorded")
    wait_for(lambda: _rows_about(stage, asked[-1]), "the newest refusal is recorded")
    lost = [number for number, subject in enumerate(asked) if not _rows_about(stage, subject)]
    assert lost == [*range(lost[0], lost[0] + len(lost))] if lost else True, "what is lost was in one queue"
    for key in written:
        count = "select count(*) from audit where operation_key = %s and action = 'transaction.commit' and status = 200"
        assert stage.execute(count, key) == [(1,)]


def _written(tenant: Tenant) -> str:
    """The key of a new write, which was performed."""
    key = new_key()
    done = tenant.client.commit_transaction(operations=[write_key(b"k", key.encode())], idempotency_key=key)
    assert done.status == "committed"
    return key


def _rows_about(stage: Stage, subject: str) -> int:
    return len(stage.execute("select 1 from audit where subject = %s", subject))
