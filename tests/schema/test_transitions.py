"""The database allows exactly the transitions that the states modules define, over all pairs of states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import psycopg
import pytest
from psycopg import sql

from orchestrator.allocations.states import TRANSITIONS, AllocationState
from orchestrator.reservations.states import RESERVATION_TRANSITIONS, ReservationState

INSERTED = {
    "allocations": """
        insert into allocations (tenant_id, state, sku, shape, gpu_model, gpus, region, image, price_version,
            ssh_public_keys, node_id, claim_id, operation_key, operation_fingerprint, correlation_id)
        values (uuidv7(), %s, 's', 'gpu_slice', 'm', 1, 'r', 'i', 1, '{}', uuidv7(), 1, uuidv7()::text, '', uuidv7())
        returning id""",
    "reservations": """
        insert into reservations (id, position, tenant_id, holder_id, state, resources, gpus_held, starts_at, hold_until,
            operation_key, operation_fingerprint, correlation_id, held_at, held_event)
        values (uuidv7(), nextval('reservation_positions'), uuidv7(), 'h', %s, '{r}', 0, now(), now(), uuidv7()::text, '',
            uuidv7(), now(), uuidv7())
        returning id""",
}
STATES: dict[str, list[str]] = {"allocations": list(AllocationState), "reservations": list(ReservationState)}
LEGAL: dict[str, set[tuple[str, str]]] = {
    "allocations": {(before, after) for before, after in TRANSITIONS},
    "reservations": {(before, after) for before, after in RESERVATION_TRANSITIONS},
}
CHECKS = "select conname from pg_constraint where conrelid = %s::regclass and contype = 'c'"


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """A database without the tables' CHECKs, so that the triggers alone decide."""
    with psycopg.connect(database_url) as connection:
        for table in STATES:
            for (name,) in connection.execute(CHECKS, (table,)).fetchall():
                drop = sql.SQL("alter table {} drop constraint {}").format(sql.Identifier(table), sql.Identifier(name))
                connection.execute(drop)
        connection.commit()
        yield connection


def refusal(connection: psycopg.Connection, table: str, before: str, after: str, step: int) -> str | None:
    """The constraint by which a trigger refuses this update of a row in state `before`; None if it is allowed."""
    connection.execute("set local session_replication_role = replica")
    row = connection.execute(INSERTED[table].encode(), (before,)).fetchone()
    assert row is not None
    connection.execute("set local session_replication_role = origin")
    update = sql.SQL("update {} set state = %s, row_version = row_version + %s where id = %s").format(
        sql.Identifier(table)
    )
    try:
        assert connection.execute(update, (after, step, row[0])).rowcount == 1
    except psycopg.Error as error:
        if error.sqlstate != "BT001":
            raise
        return error.diag.constraint_name
    finally:
        connection.rollback()
    return None


@pytest.mark.parametrize("table", STATES)
def test_triggers_allow_exactly_the_defined_transitions(connection: psycopg.Connection, table: str) -> None:
    pairs = list(permutations(STATES[table], 2))
    allowed = {pair for pair in pairs if refusal(connection, table, *pair, 1) is None}
    assert allowed == LEGAL[table]
    legal = f"{table.removesuffix('s')}_transition_legal"
    assert {refusal(connection, table, *pair, 1) for pair in set(pairs) - allowed} == {legal}


@pytest.mark.parametrize("table", STATES)
@pytest.mark.parametrize("step", [0, 2])
def test_a_legal_transition_without_its_guard_is_refused(connection: psycopg.Connection, table: str, step: int) -> None:
    guarded = f"{table.removesuffix('s')}_transition_guarded"
    assert {refusal(connection, table, *pair, step) for pair in LEGAL[table]} == {guarded}


@pytest.mark.parametrize(("table", "first"), [("allocations", "requested"), ("reservations", "hold")])
def test_a_row_starts_in_its_first_state(connection: psycopg.Connection, table: str, first: str) -> None:
    begun = set()
    for state in STATES[table]:
        try:
            connection.execute(INSERTED[table].encode(), (state,))
            begun.add(state)
        except psycopg.Error as error:
            if error.sqlstate != "BT001":
                raise
        finally:
            connection.rollback()
    assert begun == {first}
