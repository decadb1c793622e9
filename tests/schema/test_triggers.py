"""Each trigger refuses or records what it exists for, exercised in SQL without any code of Berth in between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, TypeVar

import psycopg
import pytest

from orchestrator.allocations.states import TRANSITIONS, AllocationState
from orchestrator.nodes import states as nodes
from orchestrator.reservations.states import RESERVATION_TRANSITIONS, ReservationState
from tests.schema.catalog import triggers
from tests.support.rows import (
    LATER,
    NOW,
    OTHER,
    SECOND,
    TENANT,
    Row,
    heed_triggers,
    insert,
    number,
    put,
    put_tenants,
    refusal,
    update_to,
)
from tests.support.states_as_rows import ALLOCATION_STATES, RESERVATION_STATES

Case = TypeVar("Case", bound=Callable[..., None])
Session = psycopg.Connection[Any]
EXERCISED: set[str] = set()


def exercises(*names: str) -> Callable[[Case], Case]:
    """Record that the test exercises these triggers."""

    def note(case: Case) -> Case:
        EXERCISED.update(names)
        return case

    return note


def test_every_trigger_is_exercised(session: Session) -> None:
    assert triggers(session) == EXERCISED


@exercises("allocation_transitions")
@pytest.mark.parametrize(("before", "after"), product(ALLOCATION_STATES, repeat=2))
def test_allocations_take_legal_transitions_only(schema: Session, before: str, after: str) -> None:
    put(schema, "allocations", **ALLOCATION_STATES[before])
    legal = before == after or (AllocationState(before), AllocationState(after)) in TRANSITIONS
    # The columns of both states are set, so that no CHECK constraint refuses before the trigger.
    row = ALLOCATION_STATES[after]
    cleared: Row = {
        "released_at": None,
        "failed_at": None,
        "waits_for": "worker",
        "waits_since": NOW,
        "waits_until": LATER,
    }
    answer = refusal(schema, *update_to("allocations", {**cleared, **row}))
    assert answer == (None if legal else ("BT001", "allocation_transition_legal"))
    unguarded = refusal(schema, *update_to("allocations", {**cleared, **row}, row_version=1))
    skipped = refusal(schema, *update_to("allocations", {**cleared, **row}, row_version=3))
    if before == after:
        assert (unguarded, skipped) == (None, None)
    else:
        constraint = "allocation_transition_guarded" if legal else "allocation_transition_legal"
        assert (unguarded, skipped) == (("BT001", constraint),) * 2


@exercises("allocation_beginnings")
@pytest.mark.parametrize("state", ALLOCATION_STATES)
def test_allocations_begin_as_requested(schema: Session, state: str) -> None:
    heed_triggers(schema)
    if state == "requested":
        insert(schema, "allocations", **ALLOCATION_STATES[state])
        return
    with pytest.raises(psycopg.Error) as refused:
        insert(schema, "allocations", **ALLOCATION_STATES[state])
    assert (refused.value.sqlstate, refused.value.diag.constraint_name) == ("BT001", "allocation_begins_requested")


@exercises("reservation_transitions")
@pytest.mark.parametrize(("before", "after"), product(RESERVATION_STATES, repeat=2))
def test_reservations_take_legal_transitions_only(schema: Session, before: str, after: str) -> None:
    put(schema, "reservations", **RESERVATION_STATES[before])
    legal = before == after or (ReservationState(before), ReservationState(after)) in RESERVATION_TRANSITIONS
    cleared: Row = {
        "ended_at": None, "ended_event": None, "retire_after": None, "waits_for": "confirm", "waits_since": NOW,
        "waits_until": LATER, "expires_at": LATER,
    }  # fmt: skip
    row = {**cleared, **RESERVATION_STATES[after]}
    assert refusal(schema, *update_to("reservations", row)) == (
        None if legal else ("BT001", "reservation_transition_legal")
    )
    unguarded = [refusal(schema, *update_to("reservations", row, row_version=version)) for version in (1, 3)]
    if before == after:
        assert unguarded == [None, None]
    else:
        constraint = "reservation_transition_guarded" if legal else "reservation_transition_legal"
        assert unguarded == [("BT001", constraint)] * 2


@exercises("reservation_beginnings")
@pytest.mark.parametrize("state", RESERVATION_STATES)
def test_reservations_begin_as_hold(schema: Session, state: str) -> None:
    heed_triggers(schema)
    if state == "hold":
        insert(schema, "reservations", **RESERVATION_STATES[state])
        return
    with pytest.raises(psycopg.Error) as refused:
        insert(schema, "reservations", **RESERVATION_STATES[state])
    assert (refused.value.sqlstate, refused.value.diag.constraint_name) == ("BT001", "reservation_begins_as_hold")


@exercises("node_transitions", "drain_forgotten")
@pytest.mark.parametrize(("before", "after"), product(nodes.NodeState, repeat=2))
def test_nodes_take_legal_transitions_only(schema: Session, before: nodes.NodeState, after: nodes.NodeState) -> None:
    for table, row in (("pools", {}), ("nodes", {"state": before.value}), ("node_drains", {})):
        put(schema, table, **row)
    legal = before is after or (before, after) in nodes.TRANSITIONS
    change = f"update nodes set state = '{after}'"
    assert refusal(schema, change) == (None if legal else ("BT001", "node_transition_legal"))
    if legal:
        schema.execute(change.encode())
        kept = before != "draining" or after == "draining"
        assert schema.execute("select count(*) from node_drains").fetchone() == (int(kept),)


WAITS = (None, "node", "operator", "force_release")
BLOCKED = ("operator", "force_release")


@exercises("claim_blocked")
@pytest.mark.parametrize(("before", "after"), product(WAITS, repeat=2))
def test_a_claim_that_becomes_blocked_or_free_of_it_changes_its_nodes_version(
    schema: Session, before: str | None, after: str | None
) -> None:
    put(schema, "pools")
    put(schema, "nodes")
    put(schema, "nodes", **SECOND["nodes"])
    put(schema, "claims", waits_for=before)
    schema.execute("update claims set waits_for = %s", (after,))
    grown = 2 if (before in BLOCKED) != (after in BLOCKED) else 1
    assert schema.execute("select name, row_version from nodes order by name").fetchall() == [
        ("node-1", grown), ("node-2", 1),
    ]  # fmt: skip


@exercises("claim_freed")
@pytest.mark.parametrize(
    ("owner", "change", "claimed"),
    [
        ("allocation", "booked = false, closed_at = now()", ["[1001,1003)"]),
        ("reservation", "booked = false, closed_at = now()", []),
        ("allocation", "fence = 9", []),
    ],
)
def test_the_end_of_an_allocations_right_claims_what_maintenance_planned(
    schema: Session, owner: str, change: str, claimed: list[str]
) -> None:
    units = "{[1001,1003)}"
    put(schema, "pools")
    put(schema, "nodes")
    put(schema, "maintenance_windows", starts_at="2100-01-01Z", ends_at="2100-01-02Z", waits_until="2100-01-01Z")
    put(schema, "maintenance_units", units=units, planned=units)
    put(schema, "claims", id=1_000, owner_kind=owner, units=units)
    schema.execute(f"update claims set {change}".encode())
    schema.execute("set constraints claim_freed immediate")
    found = schema.execute("select unnest(units)::text from claims where owner_kind = 'maintenance'").fetchall()
    assert [text for (text,) in found] == claimed


@exercises("claim_fence_drawn")
@pytest.mark.parametrize(
    ("change", "inherited"),
    [("fence = 5", None), ("fence = 5, inherited_fence = 4", None), ("fence = fence", 1), ("booked = false", 1)],
)
def test_a_claim_that_draws_a_fence_inherits_none(schema: Session, change: str, inherited: int | None) -> None:
    put(schema, "claims", fence=2, inherited_fence=1, occupied=True, occupied_from=NOW)
    schema.execute(f"update claims set {change}".encode())
    assert schema.execute("select inherited_fence from claims").fetchall() == [(inherited,)]


@exercises(
    "ledger_never_changes", "ledger_is_never_emptied", "sku_prices_never_change", "metering_intervals_stay",
    "audit_chain_keeps", "audit_chain_leaves", "audit_anchor_keeps", "audit_anchor_advances", "audit_head_keeps",
    "audit_pending_keeps", "audit_pending_moves", "audit_stream_advances",
)  # fmt: skip
@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("ledger", "update ledger set reference = 'changed'"),
        ("ledger", "delete from ledger"),
        ("ledger", "truncate ledger"),
        ("sku_prices", "update sku_prices set since = clock_timestamp()"),
        ("sku_prices", "delete from sku_prices"),
        ("metering_intervals", "delete from metering_intervals"),
        ("audit_chain", "update audit_chain set action = 'changed'"),
        ("audit_chain", "delete from audit_chain"),
        ("audit_chain", "truncate audit_chain"),
        ("audit_anchor", "update audit_anchor set sequence = 1"),
        ("audit_anchor", "delete from audit_anchor"),
        ("audit_anchor", "truncate audit_anchor"),
        ("audit_head", "delete from audit_head"),
        ("audit_head", "truncate audit_head"),
        ("audit_pending", "update audit_pending set action = 'changed'"),
        ("audit_pending", "delete from audit_pending"),
        ("audit_pending", "truncate audit_pending"),
        ("audit_streams", "update audit_streams set sequence = 1"),
    ],
)
def test_rows_that_never_change_are_neither_changed_nor_deleted(schema: Session, table: str, statement: str) -> None:
    put(schema, table)
    assert refusal(schema, statement) == ("BB002", table)


@exercises("operation_stored", "operation_concluded")
def test_an_operation_leaves_one_audit_row_when_it_is_concluded(schema: Session) -> None:
    caller = '{"kind": "tenant", "id": "k", "action": "thing.make", "subject": "things", "agent": "curl"}'
    put(schema, "operations", status=None, caller=caller)
    read = (
        "select principal_kind, principal_id, action, subject, user_agent, status, code from audit_pending order by id"
    )
    assert schema.execute(read).fetchall() == []
    schema.execute(f"update operations set status = 201, code = 'ok', subject_id = '{OTHER}'".encode())
    made = ("tenant", "k", "thing.make", f"things/{OTHER}", "curl", 201, "ok")
    assert schema.execute(read).fetchall() == [made]
    schema.execute("update operations set event_id = null, version = 3")
    assert schema.execute("select caller from operations").fetchall() == [(None,)]
    insert(schema, "operations", key="refused", status=409, code="quota", caller=caller)
    assert schema.execute(read).fetchall() == [made, ("tenant", "k", "thing.make", "things", "curl", 409, "quota")]


@exercises("audit_inserted")
def test_a_row_for_the_view_waits_for_the_chain(schema: Session) -> None:
    heed_triggers(schema)
    schema.execute(
        "insert into audit (principal_kind, principal_id, action, subject) values ('system', 'part', 'thing.turn', 'things/1')"
    )
    read = "select principal_id, action, code, detail, sequence from audit"
    assert schema.execute(read).fetchall() == [("part", "thing.turn", "ok", {}, None)]
    assert schema.execute("select count(*) from audit_pending").fetchall() == [(1,)]


CLOSE = "update metering_intervals set ended_at = '2026-01-03T00:00:00Z', closed_version = 7"


@exercises("metering_intervals_close_once")
def test_a_metering_interval_is_closed_once_and_nothing_else_of_it_changes(schema: Session) -> None:
    put(schema, "metering_intervals")
    for change in (
        f"allocation_id = '{OTHER}'", f"tenant_id = '{OTHER}'", "sku = 'another'", "gpus = 2", "price_version = 2",
        "price_micro_per_gpu_second = 2", f"active_at = '{LATER}'", "opened_version = 2",
    ):  # fmt: skip
        assert refusal(schema, f"update metering_intervals set {change}") == ("BB002", "metering_intervals"), change
        assert refusal(schema, f"{CLOSE}, {change}") == ("BB002", "metering_intervals"), change
    schema.execute(CLOSE.encode())
    for change in (CLOSE, "update metering_intervals set ended_at = null, closed_version = null"):
        assert refusal(schema, change) == ("BB002", "metering_intervals")


@exercises("ledger_is_settled")
@pytest.mark.parametrize("prepaid", [False, True])
def test_ledger_lines_move_their_tenants_balance_and_make_it_due(schema: Session, prepaid: bool) -> None:
    put_tenants(schema)
    put(schema, "balances", prepaid=prepaid, look_at="3000-01-01T00:00:00Z" if prepaid else None)
    put(schema, "balances", tenant_id=OTHER, prepaid=True, look_at="3000-01-01T00:00:00Z")
    schema.execute(
        "insert into ledger (tenant_id, kind, amount_micro_units, actor_id, operation_key, reference) values"
        " (%(tenant)s, 'top_up', 100, '1', 'a', null), (%(tenant)s, 'withdrawal', 30, '1', 'b', 'why')",
        {"tenant": TENANT},
    )
    insert(schema, "ledger", id=99, amount_micro_units=7)
    settled = schema.execute(
        "select tenant_id::text, settled_micro_units, look_at <= clock_timestamp() from balances order by tenant_id"
    ).fetchall()
    assert settled == [(TENANT, 63, True if prepaid else None), (OTHER, 0, False)]


@exercises("metering_intervals_are_looked_at")
def test_an_opened_interval_makes_a_prepaid_balance_due(schema: Session) -> None:
    put_tenants(schema)
    for tenant, prepaid in ((TENANT, True), (OTHER, False), (number(20), True)):
        put(schema, "balances", tenant_id=tenant, prepaid=prepaid)
    for tenant, allocation in ((TENANT, TENANT), (OTHER, OTHER)):
        insert(schema, "metering_intervals", tenant_id=tenant, allocation_id=allocation)
    due = schema.execute("select look_at <= clock_timestamp() from balances order by tenant_id").fetchall()
    assert due == [(True,), (None,), (None,)]


@exercises("tenants_have_balances")
def test_a_new_tenant_has_a_balance_of_nothing(schema: Session) -> None:
    heed_triggers(schema)
    insert(schema, "tenants")
    found = schema.execute("select tenant_id::text, prepaid, settled_micro_units from balances").fetchall()
    assert found == [(TENANT, False, 0)]


@exercises("skus_keep_prices")
def test_every_price_of_a_sku_is_kept(schema: Session) -> None:
    heed_triggers(schema)
    insert(schema, "skus", default_image=None, price_micro_per_gpu_second=5)
    schema.execute("update skus set price_version = 2, price_micro_per_gpu_second = 9")
    schema.execute("update skus set price_version = 2, price_micro_per_gpu_second = 10")
    kept = schema.execute("select sku, price_version, price_micro_per_gpu_second from sku_prices order by 2").fetchall()
    assert kept == [("h100.slice", 1, 5), ("h100.slice", 2, 9)]


def counted(schema: Session) -> dict[str, int]:
    """The rows counted for each kind, over all stripes."""
    return dict(schema.execute("select kind, sum(number)::integer from live_rows group by kind").fetchall())


@exercises("operations_added", "operations_gone", "operations_emptied")
def test_operations_count_themselves(schema: Session) -> None:
    heed_triggers(schema)
    insert(schema, "operations")
    insert(schema, "operations", key="key-2")
    insert(schema, "operations", key="key-3")
    assert counted(schema) == {"operations": 3}
    schema.execute("delete from operations where key <> 'key-3'")
    assert counted(schema) == {"operations": 1}
    schema.execute("truncate operations")
    assert counted(schema) == {}


@exercises("operations_added")
def test_the_bound_on_operations_is_kept_for_all_but_endings(schema: Session) -> None:
    heed_triggers(schema)
    insert(schema, "operations")
    schema.execute("set local berth.operations_max = 2")
    insert(schema, "operations", key="key-2")
    with pytest.raises(psycopg.Error) as refused, schema.transaction():
        insert(schema, "operations", key="key-3")
    assert refused.value.sqlstate == "BO001"
    insert(schema, "operations", key="key-4", ending=True)
    assert counted(schema) == {"operations": 3}


@exercises("resources_added", "resources_gone", "resources_emptied")
def test_resources_count_themselves(schema: Session) -> None:
    heed_triggers(schema)
    insert(schema, "resources")
    insert(schema, "resources", **SECOND["resources"])
    assert counted(schema) == {"resources": 2}
    schema.execute("delete from resources where id = 'seat-0'")
    assert counted(schema) == {"resources": 1}
    schema.execute("truncate resources")
    assert counted(schema) == {}


@exercises("reservations_added", "reservations_changed", "reservations_gone", "reservations_emptied")
def test_live_reservations_and_holds_count_themselves(schema: Session) -> None:
    heed_triggers(schema)
    for n in (1, 2, 3):
        insert(schema, "reservations", id=number(30 + n), position=n, operation_key=f"hold-{n}")
    assert counted(schema) == {"reservations": 3, "holds": 3}
    confirm, confirmed = update_to("reservations", RESERVATION_STATES["confirmed"])
    schema.execute(f"{confirm} where position = 1".encode(), confirmed)
    assert counted(schema) == {"reservations": 3, "holds": 2}
    cancel, cancelled = update_to("reservations", RESERVATION_STATES["cancelled"])
    schema.execute(f"{cancel} where position = 2".encode(), cancelled)
    assert counted(schema) == {"reservations": 2, "holds": 1}
    schema.execute("delete from reservations where position in (2, 3)")
    assert counted(schema) == {"reservations": 1, "holds": 0}
    schema.execute("truncate reservations")
    assert counted(schema) == {}


@exercises("hardware_history_never_changes", "hardware_history_is_never_emptied")
def test_the_history_of_hardware_is_only_appended(schema: Session) -> None:
    put(schema, "hardware_history")
    for statement in ("update hardware_history set detail = 'another'", "truncate hardware_history"):
        assert refusal(schema, statement) == ("BB002", "hardware_history")


@exercises("quarantines_are_noted", "fault_reports_are_noted", "certificate_noted", "site_certificate_noted")
def test_quarantines_and_fault_reports_are_noted(schema: Session) -> None:
    put(schema, "nodes")
    put(schema, "hardware_places")
    put(schema, "hardware_places", serial="1653", slots=[1])
    insert(schema, "slot_quarantines", evidence="dmesg")
    schema.execute("update slot_quarantines set note = 'n', returned_by = 'admin:b', returned_at = clock_timestamp()")
    insert(schema, "fault_reports", slots=[0, 2])
    columns = "serial || ' ' || happened || ' by ' || actor || ': ' || detail || coalesce(evidence, '')"
    assert [row[0] for row in schema.execute(f"select {columns} from hardware_history order by id".encode())] == [
        "1652 quarantined by admin:a: rdmesg", "1652 returned by admin:b: n", "1652 fault_reported by tenant:a: reported: slow",
    ]  # fmt: skip
    put(schema, "site_agents")
    insert(schema, "node_certificates", pem="PEM")
    insert(schema, "site_agent_certificates", pem="PEM")
    issued = schema.execute("select event_type, payload ->> 'pem' from outbox order by id desc limit 2")
    assert issued.fetchall() == [("site.certificate_issued", "PEM"), ("node.certificate_issued", "PEM")]
