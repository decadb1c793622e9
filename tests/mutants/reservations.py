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
        ("tests/api/operations/test_fingerprints_and_limits.py",),
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
    Mutant(
        "creates reserve their keys in the order of the request",
        "placement",
        "migrations/functions/placement/place_allocations.sql",
        "    order by i.tenant_id, i.key\n    on conflict do nothing;",
        "    on conflict do nothing;",
        ("tests/placement/test_lock_order.py::test_lists_of_creates_in_opposite_orders_never_deadlock[keys]",),
    ),
    Mutant(
        "creates change quotas in any order",
        "placement",
        "migrations/functions/tenants/change_quotas.sql",
        "group by t.id order by t.id loop",
        "group by t.id order by random() loop",
        ("tests/placement/test_lock_order.py::test_lists_of_creates_in_opposite_orders_never_deadlock[quotas]",),
    ),
    Mutant(
        "holds reserve their keys in the order of the request",
        "reservations",
        "migrations/functions/holds/hold_together.sql",
        "order by i.one ->> 'tenant_id', i.one ->> 'key' collate \"C\" loop",
        "order by i.n loop",
        ("tests/placement/test_lock_order.py::test_lists_of_holds_in_opposite_orders_never_deadlock_on_their_keys",),
    ),
    Mutant(
        "a hold locks its nodes in any order",
        "reservations",
        "migrations/functions/holds/lock_hold.sql",
        "perform from nodes n where n.id = any (p_nodes) order by n.id for",
        "perform from nodes n where n.id = any (p_nodes) order by random() for",
        ("tests/placement/test_lock_order.py::test_bundles_in_opposite_orders_never_deadlock[nodes]",),
    ),
    Mutant(
        "a hold locks its resources in any order",
        "reservations",
        "migrations/functions/holds/lock_hold.sql",
        "perform from resources r where r.id = any (p_resources) order by r.id for",
        "perform from resources r where r.id = any (p_resources) order by random() for",
        ("tests/placement/test_lock_order.py::test_bundles_in_opposite_orders_never_deadlock[resources]",),
    ),
    Mutant(
        "a consume is written in other bytes than its repetition",
        "reservations",
        "orchestrator/reservations/commands/consume.py",
        "return Done(201, body, allocation_id)",
        'return Done(201, body.replace(" : ", ": "), allocation_id)',
        (
            "tests/reservations/turning_over/test_consuming.py::test_a_repetition_gets_the_first_answer_and_never_runs_twice",
        ),
    ),
    Mutant(
        "one claim under cleanup hides a right",
        "reservations",
        "migrations/functions/allocations/cleanup_awaited.sql",
        "select case when bool_and(",
        "select case when bool_or(",
        ("tests/reservations/test_busy_with_cleanup.py::test_a_right_in_the_way_hides_the_cleanup_beside_it",),
    ),
    Mutant(
        "an overdue hold counts as a right beside cleanup",
        "reservations",
        "migrations/functions/allocations/cleanup_awaited.sql",
        "\n      and not coalesce(r.state = 'hold' and r.expires_at <= p_now, false)",
        "",
        ("tests/reservations/test_busy_with_cleanup.py::test_a_right_in_the_way_hides_the_cleanup_beside_it",),
    ),
    Mutant(
        "a release does not count as cleanup",
        "reservations",
        "migrations/functions/allocations/cleanup_awaited.sql",
        " or coalesce(a.state in ('releasing', 'release_failed'), false)",
        "",
        (
            "tests/reservations/test_busy_with_cleanup.py::test_a_hold_that_only_cleanup_prevents_says_so_and_since_when",
        ),
    ),
]
