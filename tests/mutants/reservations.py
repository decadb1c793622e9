"""Mutants of the noun reservations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.node_ids import check, foreign

ROW_SECURITY = "tests/api/reservations/test_row_security.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "no policy limits the public API to its tenant's reservations",
        "reservations",
        "migrations/policies.sql",
        "            ('reservations',               'tenant_id'),\n",
        "",
        (f"{ROW_SECURITY}::test_what_a_request_learns_of_a_rivals_reservation",),
    ),
    Mutant(
        "a request locks holds of rivals that are not overdue",
        "reservations",
        "migrations/functions/holds/lock_overdue_holds.sql",
        "r.expires_at <= clock_timestamp()\n            order by r.id for no key update skip locked",
        "true\n            order by r.id for no key update skip locked",
        (f"{ROW_SECURITY}::test_only_holds_past_their_deadline_are_locked_or_expired",),
    ),
    Mutant(
        "a request expires holds of rivals by a clock that it names",
        "reservations",
        "migrations/functions/holds/expire_holds.sql",
        "least(p_judged_at, clock_timestamp())",
        "p_judged_at",
        (f"{ROW_SECURITY}::test_only_holds_past_their_deadline_are_locked_or_expired",),
    ),
    Mutant(
        "a resource that another tenant has reserved is shown as available",
        "reservations",
        "orchestrator/reservations/store/resources.py",
        ") c left join reservation_states r on",
        ") c left join reservations r on",
        (f"{ROW_SECURITY}::test_a_hold_that_is_not_overdue_is_in_the_way",),
    ),
    Mutant(
        "a resource names the reservation of another tenant",
        "reservations",
        "orchestrator/reservations/store/resources.py",
        "is null or c.tenant_id = :tenant_id) and r.id is not null",
        "is null or true) and r.id is not null",
        (f"{ROW_SECURITY}::test_a_hold_that_is_not_overdue_is_in_the_way",),
    ),
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
        "a turn-over goes through every open claim while the planner knows of none",
        "reservations",
        "migrations/functions/reservations/lock_reservation.sql",
        "from (select node_id, closed_at from claims where owner_id = p_id offset 0) c",
        "from (select node_id, closed_at from claims where owner_id = p_id) c",
        ("tests/database/test_plans.py::test_open_claims_that_nobody_saw_are_not_read",),
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
        "perform count_live('holds', diff.all_holds)",
        "perform count_live('holds', greatest(diff.all_holds, 0))",
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
        "a refused create corrects the fit of a node that it has not locked",
        "placement",
        "migrations/functions/placement/place_allocations.sql",
        "where d.id = taken::uuid for no key update skip locked;",
        "where d.id = taken::uuid;",
        ("tests/placement/test_fits.py",),
    ),
    Mutant(
        "a create is refused because its node left service after the search",
        "placement",
        "orchestrator/placement/window_placing.py",
        "        return LostRace() if isinstance(outcome, NoRoom) else outcome\n",
        "        return outcome\n",
        (
            (
                "tests/placement/windows/test_held_windows.py::"
                "test_a_create_whose_node_leaves_service_while_it_waits_for_its_lock_goes_to_another"
            ),
        ),
    ),
    Mutant(
        "bare metal waits for a part of a larger node",
        "placement",
        "orchestrator/placement/store/placing.py",
        "        and (cast(:whole as integer) is null or n.slot_count = :whole) limit :gpus\n",
        "        and cast(:whole as integer) is distinct from 0 limit :gpus\n",
        (
            (
                "tests/placement/test_creating.py::"
                "test_bare_metal_is_refused_while_only_a_part_of_a_larger_node_has_as_many_gpus_free"
            ),
        ),
    ),
    Mutant(
        "the claims of a hold that did not expire are closed",
        "reservations",
        "migrations/functions/holds/expire_holds.sql",
        "p_retention_seconds, null, null) is null;",
        "p_retention_seconds, null, null) < 0;",
        (
            (
                "tests/reservations/test_races.py::"
                "test_a_hold_that_is_confirmed_before_its_expiry_has_its_lock_keeps_its_claims"
            ),
        ),
    ),
    Mutant(
        "a claim is turned over with the SSH keys that are left",
        "reservations",
        "migrations/functions/allocations/turn_over_claim.sql",
        "item.user_data, keys, claim.node_id,",
        (
            "item.user_data,\n        (select array_agg(k.public_key) from ssh_keys k where k.id = any (item.ssh_key_ids)),"
            " claim.node_id,"
        ),
        (
            (
                "tests/reservations/turning_over/test_consuming.py::"
                "test_an_ssh_key_that_is_deleted_while_its_claim_is_turned_over_is_still_the_allocations"
            ),
        ),
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
        "return Answer(201, body, kept",
        'return Answer(201, body.replace(" : ", ": "), kept',
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
    Mutant(
        "a confirm of a list waits for a locked reservation",
        "reservations",
        "migrations/functions/confirms/confirm_reservations.sql",
        "for no key update of r skip locked);",
        "for no key update of r);",
        ("tests/reservations/test_lists_passing_over.py::test_a_locked_reservation_delays_its_own_confirm_alone",),
    ),
    Mutant(
        "the second confirm of a reservation in a list is not a noop",
        "reservations",
        "migrations/functions/confirms/write_confirms.sql",
        " and j.first then 'ok'",
        " then 'ok'",
        ("tests/reservations/test_confirm_lists.py::test_a_list_says_what_each_alone_would",),
    ),
    Mutant(
        "a refused confirm keeps its key",
        "reservations",
        "migrations/functions/confirms/write_confirms.sql",
        "    if refused then\n",
        "    if false then\n",
        ("tests/reservations/test_confirm_lists.py::test_a_list_says_what_each_alone_would",),
    ),
    Mutant(
        "a confirm takes another tenant's reservation",
        "reservations",
        "migrations/functions/confirms/judge_confirms.sql",
        "on r.id = i.id and r.tenant_id = i.tenant_id",
        "on r.id = i.id",
        (foreign("POST /api/v1/reservations/{reservation_id}/confirm"),),
    ),
    Mutant(
        "an operator's confirm is not audited",
        "reservations",
        "migrations/functions/confirms/confirm_reservations.sql",
        "true, p_items -> (i.n - 1)::integer -> 'caller',",
        "true, null::jsonb,",
        (
            "tests/reservations/test_one_call.py::test_an_operators_list_is_confirmed_in_one_call_and_audited_item_by_item",
        ),
    ),
    Mutant(
        "an operator's confirm has no name in its event",
        "reservations",
        "migrations/functions/confirms/write_confirms.sql",
        ", 'actor_id', p_actor_id",
        "",
        (
            "tests/reservations/test_one_call.py::test_an_operators_list_is_confirmed_in_one_call_and_audited_item_by_item",
        ),
    ),
    Mutant(
        "a late confirm leaves the hold",
        "reservations",
        "migrations/functions/reservations/end_refusing.sql",
        "    if p_to <> subject.state then\n",
        "    if false then\n",
        ("tests/reservations/test_one_call.py::test_a_late_confirm_ends_the_hold_with_its_refusal_and_both_events",),
    ),
    Mutant(
        "a refusal stored with an effect has no event",
        "reservations",
        "migrations/functions/operations/conclude_refused.sql",
        "subject_id = p_subject, event_id = event,",
        "subject_id = p_subject,",
        ("tests/reservations/test_one_call.py::test_a_late_confirm_ends_the_hold_with_its_refusal_and_both_events",),
    ),
    Mutant(
        "an operator's late confirm is the tenant's refusal",
        "reservations",
        "orchestrator/reservations/store/confirming.py",
        "return self.tenant_id if self.operator is None else None",
        "return self.tenant_id",
        ("tests/reservations/test_one_call.py::test_a_late_confirm_ends_the_hold_with_its_refusal_and_both_events",),
    ),
    Mutant(
        "a consume turns over what the catalogue refused",
        "reservations",
        "migrations/functions/reservations/judge_consume.sql",
        "when admitted ? 'refusal' then",
        "when false then",
        ("tests/reservations/turning_over/test_consuming.py::test_every_refusal_has_its_code_and_changes_nothing",),
    ),
    Mutant(
        "a consume turns over units that were not admitted",
        "reservations",
        "migrations/functions/reservations/judge_consume.sql",
        "when admitted is null then",
        "when false then",
        ("tests/reservations/test_one_call.py::test_units_that_were_not_admitted_are_admitted_first",),
    ),
    Mutant(
        "a consume is admitted for the first kind of units it finds",
        "reservations",
        "migrations/functions/reservations/judge_consume.sql",
        "where a.admission -> 'units' = jsonb_build_object(",
        "where a.admission -> 'units' is not null or a.admission = jsonb_build_object(",
        ("tests/reservations/test_one_call.py::test_units_of_each_kind_are_admitted_for_themselves",),
    ),
    Mutant(
        "a consume is evaluated before its window begins",
        "reservations",
        "migrations/functions/reservations/judge_consume.sql",
        "when subject.starts_at > subject.clock\n",
        "when false\n",
        ("tests/reservations/turning_over/test_consuming.py::test_every_refusal_has_its_code_and_changes_nothing",),
    ),
    Mutant(
        "calls of reservations take the connections of creates",
        "reservations",
        "orchestrator/database/pools.py",
        "calls = self._calls[group]",
        "calls = self._calls[CallGroup.CREATES]",
        ("tests/database/test_function_calls.py::test_calls_of_one_group_take_no_connection_of_another",),
    ),
    Mutant(
        "a call never takes the reserve",
        "reservations",
        "orchestrator/database/pools.py",
        "if ending.verb and calls.exhausted",
        "if ending.verb and False",
        (
            "tests/database/test_function_calls.py::test_a_call_of_an_ending_verb_takes_the_reserve_when_all_connections_are_in_use",
        ),
    ),
    Mutant(
        "a loss during a read leaves an unknown outcome",
        "reservations",
        "orchestrator/database/transactions.py",
        "committing=sent and writes)",
        "committing=sent)",
        ("tests/database/test_function_calls.py::test_a_loss_during_a_read_did_nothing",),
    ),
    Mutant(
        "moves: a claim keeps nothing of since when it has its units",
        "reservations",
        "migrations/functions/reservations/move_claim.sql",
        "                      moved_at = p_judged_at\n",
        "                      moved_at = null\n",
        ("tests/reservations/turning_over/test_late_starts.py::test_it_is_moved_when_an_equal_node_becomes_free",),
    ),
]
