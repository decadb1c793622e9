"""Mutants of these nouns: billing and verification."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import branch, foreign, pages

_USAGE_BY_ALLOCATION = (
    "    join sku_prices p on p.sku = a.sku and p.price_version = a.price_version\n"
    "    where a.active_at < :end and coalesce(a.releasing_at, a.failed_at, 'infinity') > :begin\n"
    "      and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)\n"
    "), costs as (\n"
    "    select t.*, metered_gpu_microseconds(gpus, active_at, hi) - metered_gpu_microseconds(gpus, active_at, lo)"
    " as microseconds,\n"
    "           metered_micro_units(gpus, price, active_at, hi) - metered_micro_units(gpus, price, active_at, lo) as amount\n"
    "    from active t where hi > lo\n"
    ")\n"
    "select id::te"
)

MUTANTS: list[Mutant] = [
    Mutant(
        "usage of all tenants is listed",
        "billing",
        "orchestrator/billing/store/usage.py",
        _USAGE_BY_ALLOCATION,
        _USAGE_BY_ALLOCATION.replace("or a.tenant_id = :tenant_id)", "or true)"),
        (foreign("GET /api/v1/usage"),),
    ),
    Mutant(
        "usage by allocation repeats a line",
        "billing",
        "orchestrator/billing/store/usage.py",
        "from costs where id::text > :after",
        "from costs where id::text >= :after",
        (pages("/api/v1/usage {'by': 'allocation'}"),),
    ),
    Mutant(
        "usage by day repeats a line",
        "billing",
        "orchestrator/billing/store/usage.py",
        "having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id > :after",
        "having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id >= :after",
        (pages("/api/v1/usage {'by': 'day'}"),),
    ),
    Mutant(
        "usage by tenant repeats a line",
        "billing",
        "orchestrator/billing/store/usage.py",
        "having tenant_id::text > :after",
        "having tenant_id::text >= :after",
        (pages("/api/v1/usage {'by': 'tenant'}"),),
    ),
    Mutant(
        "usage charges the newest price",
        "billing",
        "orchestrator/billing/store/usage.py",
        _USAGE_BY_ALLOCATION,
        _USAGE_BY_ALLOCATION.replace(
            "= a.price_version", "= (select max(v.price_version) from sku_prices v where v.sku = a.sku)"
        ),
        (
            (
                "tests/api/operations/test_fingerprints_and_limits.py::"
                "test_usage_after_a_price_change_charges_each_allocation_its_own_price"
            ),
        ),
    ),
    Mutant(
        "the ledger is emptied",
        "billing",
        "migrations/schema/billing.sql",
        "before truncate on ledger for each statement execute",
        "before truncate on ledger for each statement when (false) execute",
        ("tests/schema/test_triggers.py::test_rows_that_never_change_are_neither_changed_nor_deleted",),
    ),
    Mutant(
        "a usage line is written twice",
        "billing",
        "migrations/schema/billing.sql",
        "create unique index ledger_usage_once on ledger (allocation_id)",
        "create unique index ledger_usage_once on ledger (allocation_id, id)",
        ("tests/schema/test_uniqueness.py::test_a_second_row_with_the_same_key_is_refused[ledger_usage_once]",),
    ),
    Mutant(
        "a ledger line is changed",
        "billing",
        "migrations/schema/billing.sql",
        "before update or delete on ledger",
        "before delete on ledger",
        ("tests/schema/test_triggers.py::test_rows_that_never_change_are_neither_changed_nor_deleted",),
    ),
    Mutant(
        "an interval is closed twice",
        "billing",
        "migrations/functions/billing/refuse_reopening.sql",
        ("if old.ended_at is not null\n       or "),
        "if ",
        (("tests/schema/test_triggers.py::test_a_metering_interval_is_closed_once_and_nothing_else_of_it_changes"),),
    ),
    Mutant(
        "a payment runs twice",
        "billing",
        "migrations/schema/billing.sql",
        "create unique index ledger_payment_once",
        "create index ledger_payment_once",
        (("tests/schema/test_uniqueness.py::test_a_second_row_with_the_same_key_is_refused[ledger_payment_once]"),),
    ),
    Mutant(
        "a withdrawal gives",
        "billing",
        "migrations/functions/billing/ledger_sign.sql",
        "when p_kind in ('top_up', 'credit') then 1 else -1",
        "when p_kind = 'usage' then -1 else 1",
        ("tests/schema/test_triggers.py::test_ledger_lines_move_their_tenants_balance_and_make_it_due",),
    ),
    Mutant(
        "a ledger line leaves the balance",
        "billing",
        "migrations/schema/billing.sql",
        ("on ledger referencing new table as written\n    for each statement"),
        ("on ledger referencing new table as written\n    for each statement when (false)"),
        ("tests/schema/test_triggers.py::test_ledger_lines_move_their_tenants_balance_and_make_it_due",),
    ),
    Mutant(
        "verify takes a claim on a missing node",
        "verification",
        "orchestrator/verification/p1_one_holder.py",
        "(n.id is null or not int8multirange",
        "(not int8multirange",
        (branch("a_node_that_is_not_there"),),
    ),
    Mutant(
        "verify takes a reservation without a key",
        "verification",
        "orchestrator/verification/p2_reservations.py",
        "or r.operation_key = '' or octet_length",
        "or octet_length",
        (branch("an_old_reservation_without_a_key"),),
    ),
    Mutant(
        "verify takes a hold with occupied units",
        "verification",
        "orchestrator/verification/p2_reservations.py",
        " or c.occupied or c.occupied_from is not null)",
        " or c.occupied_from is not null)",
        (branch("a_hold_whose_units_are_occupied"),),
    ),
    Mutant(
        "verify takes a chain that begins before the log",
        "verification",
        "orchestrator/verification/p3_one_order.py",
        "(prev_version >= oldest or oldest = 1)",
        "(prev_version >= oldest)",
        (branch("a_chain_that_begins_before_a_whole_log"),),
    ),
    Mutant(
        "verify takes an active allocation that occupies nothing",
        "verification",
        "orchestrator/verification/p6_proven_cleanup.py",
        "(c.closed_at is not null or not c.occupied)",
        "(c.closed_at is not null)",
        (branch("an_active_allocation_that_occupies_nothing"),),
    ),
    Mutant(
        "verify takes a ledger without a balance",
        "verification",
        "orchestrator/verification/billing.py",
        "where b.tenant_id is null or b.settled_micro_units <>",
        "where b.settled_micro_units <>",
        (branch("a_ledger_without_a_balance"),),
    ),
    Mutant(
        "verify takes a window that waits for ever",
        "verification",
        "orchestrator/verification/p9_complete_waits.py",
        "                or (state = 'confirmed' and waits_until is null and ends_at is not null)\n",
        "",
        (branch("a_window_that_waits_for_ever"),),
    ),
]
