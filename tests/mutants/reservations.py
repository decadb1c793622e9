"""Mutants of the noun reservations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import check, foreign

MUTANTS: list[Mutant] = [
    Mutant(
        "a reservation is read whatever its tenant",
        "reservations",
        "orchestrator/reservations/store/rows.py",
        "where r.id = :id and (cast(:tenant_id as uuid) is null or r.tenant_id = :tenant_id)",
        "where r.id = :id and (cast(:tenant_id as uuid) is null or true)",
        (foreign("GET /api/v1/reservations/{reservation_id}"),),
    ),
    Mutant(
        "a reservation is cancelled whatever its tenant",
        "reservations",
        "migrations/functions/reservations/lock_reservation.sql",
        "where r.id = p_id and (p_tenant is null or r.tenant_id = p_tenant) for no key update",
        "where r.id = p_id and (p_tenant is null or true) for no key update",
        (foreign("POST /api/v1/reservations/{reservation_id}/cancel"),),
    ),
    Mutant(
        "the list of reservations begins with lower tenants",
        "reservations",
        "orchestrator/reservations/store/rows.py",
        ("where (r.tenant_id, r.position) > (:tenant_id, :after) and r.tenant_id <= :tenant_id and r.position > 0"),
        "where r.position > :after and r.tenant_id <= :tenant_id and r.position > 0",
        (foreign("GET /api/v1/reservations"),),
    ),
    Mutant(
        "a reservation's template takes another tenant's SSH key",
        "reservations",
        "orchestrator/tenants/store/ssh_keys.py",
        "where id = any (:ids) and tenant_id = :tenant_id",
        "where id = any (:ids) and cast(:tenant_id as uuid) is not null",
        (foreign("POST /api/v1/reservations"),),
    ),
    Mutant(
        "one sweep retires one batch of reservations",
        "reservations",
        "worker/sweepers/reservations.py",
        "        if retired < limit:\n",
        "        if retired <= limit:\n",
        (
            (
                "tests/worker/test_sweeps_of_many.py::"
                "test_one_sweep_retires_several_batches_of_reservations_and_leaves_the_others"
            ),
        ),
    ),
    Mutant(
        "every refusal of a batch of holds is stored",
        "reservations",
        "orchestrator/reservations/commands/hold.py",
        "if isinstance(result, Problem) and result.business",
        "if isinstance(result, Problem)",
        ("tests/api/test_fingerprints_and_limits.py",),
    ),
    Mutant(
        "ended holds stay counted",
        "reservations",
        "migrations/functions/reservations/count_reservations.sql",
        "holds := holds - more.holds",
        "holds := holds",
        ("tests/schema/test_triggers.py::test_live_reservations_and_holds_count_themselves",),
    ),
    Mutant(
        "a reservation leaves a final state",
        "reservations",
        "migrations/functions/reservations/refuse_illegal_reservation.sql",
        "('confirmed', 'released')\n",
        "('confirmed', 'released'), ('expired', 'confirmed')\n",
        ("tests/schema/test_triggers.py::test_reservations_take_legal_transitions_only[expired-confirmed]",),
    ),
    Mutant(
        "a hold has no deadline",
        "reservations",
        "migrations/schema/reservations.sql",
        "(state = 'hold') <= (expires_at is not null)",
        "true",
        (check("hold_has_deadline"),),
    ),
    Mutant(
        "a reservation begins confirmed",
        "reservations",
        "migrations/schema/reservations.sql",
        "when (new.state <> 'hold')",
        "when (new.state not in ('hold', 'confirmed'))",
        ("tests/schema/test_triggers.py::test_reservations_begin_as_hold",),
    ),
    Mutant(
        "a hold runs twice",
        "reservations",
        "migrations/schema/reservations.sql",
        "reservation_runs_once unique (operation_key, tenant_id)",
        "reservation_runs_once unique (operation_key, id)",
        (("tests/schema/test_uniqueness.py::test_a_second_row_with_the_same_key_is_refused[reservation_runs_once]"),),
    ),
    Mutant(
        "a create expires holds by the clock before its locks",
        "reservations",
        "migrations/functions/placement/place_in_window.sql",
        "            stamp := clock_timestamp();\n",
        "",
        (
            (
                "tests/reservations/test_clock_after_locks.py::"
                "test_overdue_holds_in_the_way_expire_by_the_clock_after_the_wait"
            ),
        ),
    ),
    Mutant(
        "a hold is evaluated by the clock before its locks",
        "reservations",
        "migrations/functions/holds/judge_hold.sql",
        ("stamp := clock_timestamp();\n    answer := refuse_window("),
        ("stamp := statement_timestamp();\n    answer := refuse_window("),
        ("tests/reservations/test_clock_after_locks.py",),
    ),
    Mutant(
        "a hold of chosen GPUs is evaluated by the clock before its nodes' locks",
        "reservations",
        "migrations/functions/holds/judge_hold.sql",
        ("stamp := clock_timestamp();                      -- it may"),
        ("-- it may"),
        ("tests/reservations/test_clock_after_locks.py",),
    ),
]
