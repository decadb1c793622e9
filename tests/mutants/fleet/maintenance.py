"""Mutants of maintenance windows: what they claim, what stays planned, and their ends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WINDOWS = "tests/maintenance/test_windows.py"
_FUNCTIONS = "migrations/functions/maintenance"
_STORE = "orchestrator/maintenance/store.py"
_COMMANDS = "orchestrator/maintenance/commands"

MUTANTS: list[Mutant] = [
    Mutant(
        "two claims are moved to the same units",
        "maintenance",
        "orchestrator/maintenance/moving.py",
        "if pick.node_id not in window_nodes and not pick.mask & taken.get(pick.node_id, 0):",
        "if pick.node_id not in window_nodes:",
        ("tests/maintenance/test_moves.py::test_two_reservations_get_different_units",),
    ),
    Mutant(
        "a claim is moved within the window",
        "maintenance",
        "orchestrator/maintenance/moving.py",
        "if pick.node_id not in window_nodes and not pick.mask",
        "if not pick.mask",
        ("tests/maintenance/test_moves.py::test_a_claim_moves_to_no_other_slot_of_the_window",),
    ),
    Mutant(
        "an overdue hold is moved",
        "maintenance",
        "orchestrator/maintenance/rules.py",
        "self.sku is not None and self.state != OVERDUE:",
        "self.sku is not None:",
        ("tests/maintenance/test_moves.py::test_an_overdue_hold_refuses",),
    ),
    Mutant(
        "the end of an allocation claims nothing for a window",
        "maintenance",
        f"{_FUNCTIONS}/claim_freed_units.sql",
        "        perform claim_maintenance(planned_.window_id, new.node_id);",
        "        null;",
        (f"{_WINDOWS}::test_an_allocation_keeps_its_units_planned_and_its_end_claims_them",),
    ),
    Mutant(
        "a window claims its units although an allocation has a right to them",
        "maintenance",
        f"{_FUNCTIONS}/claim_maintenance.sql",
        "tstzmultirange(span) - coalesce(range_agg(h.during), '{}') as free",
        "tstzmultirange(span) as free",
        (f"{_WINDOWS}::test_an_allocation_keeps_its_units_planned_and_its_end_claims_them",),
    ),
    Mutant(
        "units that an allocation holds are not planned",
        "maintenance",
        f"{_FUNCTIONS}/claim_maintenance.sql",
        "coalesce(bool_or(h.owner_id <> p_window), false) as shared",
        "false as shared",
        (f"{_WINDOWS}::test_a_shortened_allocation_leaves_the_window_its_time",),
    ),
    Mutant(
        "the fit of a node ignores the window on it",
        "maintenance",
        f"{_FUNCTIONS}/claim_maintenance.sql",
        "    perform refresh_node_fit(p_node);\n",
        "",
        (f"{_WINDOWS}::test_a_window_claims_its_units_and_nothing_overlaps_it",),
    ),
    Mutant(
        "a commit does not lock the nodes",
        "maintenance",
        f"{_COMMANDS}/windows.py",
        "    await store.lock_nodes(tx, [*nodes, *(pick.node_id for pick in places.values())])\n",
        "",
        (f"{_WINDOWS}::test_a_commit_waits_for_the_hold_that_has_locked_the_node",),
    ),
    Mutant(
        "conflicts of another time are in the way",
        "maintenance",
        _STORE,
        "  and c.during && tstzrange(least(",
        "  and tstzrange(null, null) && tstzrange(least(",
        (f"{_WINDOWS}::test_a_plan_lists_conflicts_and_changes_nothing",),
    ),
    Mutant(
        "a reservation in the way does not refuse",
        "maintenance",
        f"{_COMMANDS}/windows.py",
        "        require_no_conflicts(conflicts, wanted.policies, movable=places.keys())\n",
        "",
        (f"{_WINDOWS}::test_a_plan_lists_conflicts_and_changes_nothing",),
    ),
    Mutant(
        "the end of a window keeps its claims",
        "maintenance",
        _STORE,
        '    await tx.execute(_CLOSE, {"id": window.id})\n',
        "",
        (f"{_WINDOWS}::test_an_operator_ends_or_cancels_a_window",),
    ),
    Mutant(
        "the sweeper ends a window that is not due",
        "maintenance",
        _STORE,
        "if found is not None and found.due else None",
        "if found is not None else None",
        (f"{_WINDOWS}::test_a_window_starts_and_ends_at_its_times",),
    ),
    Mutant(
        "the tenants of allocations in the way are not notified",
        "maintenance",
        f"{_COMMANDS}/windows.py",
        "        await notify_tenants(tx, window, EventType.ALLOCATION_MAINTENANCE, conflicts, operation)\n",
        "",
        (f"{_WINDOWS}::test_an_allocation_keeps_its_units_planned_and_its_end_claims_them",),
    ),
    Mutant(
        "a window counts as no claim of a node that is retired",
        "maintenance",
        "orchestrator/nodes/store/open_claims.py",
        "where c.node_id = :node_id and c.closed_at is null order by",
        "where c.node_id = :node_id and c.closed_at is null and c.owner_kind <> 'maintenance' order by",
        (f"{_WINDOWS}::test_a_node_with_a_window_is_not_retired",),
    ),
    Mutant(
        "a refused window does not say what is in its way",
        "maintenance",
        "berth/cli/endings.py",
        '    if error.code == "maintenance_conflict":\n        return _in_the_way_of_a_window(error)\n',
        "",
        ("tests/cli/test_maintenance_commands.py::test_a_refused_commit_names_what_is_in_the_way",),
    ),
    Mutant(
        "the deadline of a tenant is the end of the window",
        "maintenance",
        "orchestrator/maintenance/changes.py",
        'deadline = {"deadline": window.starts_at.isoformat()}',
        'deadline = {"deadline": window.ends_at.isoformat()}',
        (f"{_WINDOWS}::test_an_allocation_keeps_its_units_planned_and_its_end_claims_them",),
    ),
    Mutant(
        "a plan says that a reservation of a SKU refuses",
        "maintenance",
        "orchestrator/maintenance/endpoints.py",
        "_LEAST = Policies(Resolution.NOTIFY, Resolution.MOVE)",
        "_LEAST = Policies(Resolution.NOTIFY, Resolution.REFUSE)",
        ("tests/maintenance/test_moves.py::test_a_reservation_moves_and_the_window_claims_its_units",),
    ),
    Mutant(
        "the start of a window emits no event",
        "maintenance",
        f"{_COMMANDS}/advance.py",
        "            await note_change(tx, window, EventType.MAINTENANCE_STARTED, _SWEEPER, None)\n",
        "",
        (f"{_WINDOWS}::test_a_window_starts_and_ends_at_its_times",),
    ),
    Mutant(
        "the task of a window begins without all of its units",
        "maintenance",
        f"{_FUNCTIONS}/maintenance_task_obstacle.sql",
        "    if not coalesce(wanted <@ taken, false)\n",
        "    if false\n",
        (
            "tests/nodes/maintenance_tasks/test_tasks.py::test_units_of_an_allocation_delay_the_task_until_they_are_clean",
        ),
    ),
]
