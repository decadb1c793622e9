"""Mutants of restores: what serves while one is open, and which nodes serve afterwards."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GATE = "tests/restores/test_gate.py"
_NODES = "tests/restores/test_nodes.py"
_SEQUENCES = "tests/restores/test_sequences.py"


def _mutant(name: str, noun: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"restore: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "steps of a closed restore are done",
        "security",
        "migrations/functions/restores/restore_lock_open.sql",
        " and r.closed_at is null for update",
        " for update",
        "tests/restores/test_sequences.py::test_a_restore_that_is_repeated_raises_nothing_twice",
    ),
    _mutant(
        "a node is opened while something of before is being started on it",
        "nodes",
        "orchestrator/nodes/commands/restored_nodes.py",
        " or await is_starting(tx, node_id)",
        "",
        f"{_NODES}::test_an_allocation_that_becomes_active_without_a_guest_is_released",
    ),
    _mutant(
        "what became active after the restore without a guest stays",
        "allocations",
        "orchestrator/allocations/store/absences.py",
        "a.requested_at < r.closed_at",
        "a.active_at < r.closed_at",
        f"{_NODES}::test_an_allocation_that_becomes_active_without_a_guest_is_released",
    ),
    _mutant(
        "an allocation without a task keeps its fence",
        "allocations",
        "berth/cli/deployment/restore/running.py",
        "        _renew_fences(connection, restore.epoch, show)\n",
        "",
        f"{_SEQUENCES}::test_an_allocation_without_a_task_gets_a_new_fence",
    ),
    _mutant(
        "new connections are not refused",
        "database",
        "berth/process/database_connections.py",
        "                    if cls.serves:\n                        await require_no_restore(connection)\n",
        "",
        f"{_GATE}::test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing",
    ),
    _mutant(
        "sessions of before go on",
        "database",
        "migrations/functions/restores/restore_end_sessions.sql",
        "            perform pg_terminate_backend(pid);\n",
        "",
        f"{_GATE}::test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing",
    ),
    _mutant(
        "sessions that remain are not noticed",
        "database",
        "migrations/functions/restores/restore_end_sessions.sql",
        "coalesce(a.backend_type, 'client backend') = 'client backend'",
        "a.backend_type = 'client backend'",
        f"{_GATE}::test_sessions_that_may_not_be_ended_keep_the_restore_from_going_on",
    ),
    _mutant(
        "the relay sequences",
        "relay",
        "outbox_relay/sequencing.py",
        "                    require_no_restore_now(connection)\n",
        "",
        f"{_GATE}::test_the_relay_sequences_and_publishes_nothing_until_the_restore_is_closed",
    ),
    _mutant(
        "it is called a lost database",
        "database",
        "orchestrator/database/sqlstates.py",
        "if isinstance(error.orig, RestoreOpen):",
        "if False:",
        f"{_GATE}::test_the_api_refuses_all_that_asks_the_database_and_a_restart_changes_nothing",
    ),
    _mutant(
        "a worker gives up",
        "worker",
        "worker/startup.py",
        "if restore_behind(error) is not None:",
        "if False:",
        f"{_GATE}::test_a_worker_waits_for_the_end_of_a_restore_longer_than_for_a_database",
    ),
    _mutant(
        "a second one is opened beside the first",
        "database",
        "migrations/functions/restores/restore_begin.sql",
        "    perform from log_head for update;\n",
        "",
        f"{_GATE}::test_one_restore_is_open_however_often_it_is_begun",
    ),
    _mutant(
        "nodes serve at once",
        "database",
        "berth/cli/deployment/restore/running.py",
        "        _close_nodes(connection, restore.epoch, show)\n",
        "",
        f"{_NODES}::test_no_create_is_placed_on_a_slot_with_a_guest_of_the_lost_interval",
    ),
    _mutant(
        "the fit of nodes stays",
        "database",
        "migrations/functions/restores/restore_close_nodes.sql",
        "set free_mask = 0, fit_class = 0, row_version",
        "set row_version",
        f"{_NODES}::test_no_create_is_placed_on_a_slot_with_a_guest_of_the_lost_interval",
    ),
    _mutant(
        "an inventory of before counts",
        "nodes",
        "orchestrator/nodes/store/inventories.py",
        "where w.node_id = :node_id and n.inventory_after > r.closed_at",
        "where w.node_id = :node_id and n.inventory_after is not null",
        f"{_NODES}::test_an_inventory_of_before_the_restore_opens_nothing",
    ),
    _mutant(
        "a node is opened before its orphans are recorded",
        "nodes",
        "orchestrator/nodes/commands/restored_nodes.py",
        "        if await find_unexplained(tx, [node_id], refresh_seconds=NEVER_SECONDS, limit=1):\n            return False\n",
        "",
        f"{_NODES}::test_a_node_is_not_opened_before_all_that_is_unknown_on_it_is_recorded",
    ),
    _mutant(
        "orphans are not recorded before",
        "worker",
        "worker/sweepers/reconciliation.py",
        "        await self._open_restored()\n",
        "",
        f"{_NODES}::test_no_create_is_placed_on_a_slot_with_a_guest_of_the_lost_interval",
    ),
    _mutant(
        "a lifted quarantine opens an awaited slot",
        "nodes",
        "migrations/functions/nodes/keep_slots_v2.sql",
        "                 when exists (select from awaited_inventories w where w.node_id = s.node_id) then awaited\n",
        "",
        f"{_NODES}::test_what_else_keeps_a_slot_out_of_service_keeps_it_afterwards",
    ),
    _mutant(
        "what ended in the lost interval stays active",
        "worker",
        "worker/sweepers/reconciliation.py",
        "if await release_lost_in_restore(self._context, allocation_id):",
        "if False:",
        f"{_NODES}::test_an_allocation_that_ended_in_the_lost_interval_is_released_and_credited",
    ),
    _mutant(
        "an inventory of before ends allocations",
        "allocations",
        "orchestrator/allocations/store/absences.py",
        "n.inventory_after > greatest(r.closed_at, a.active_at)",
        "n.inventory_after is not null",
        f"{_NODES}::test_an_allocation_is_not_released_for_an_inventory_of_before",
    ),
    _mutant(
        "a node is opened before what it lacks is released",
        "nodes",
        "orchestrator/nodes/commands/restored_nodes.py",
        "        if await find_lost_in_restore(tx, [node_id], 1):\n            return False\n",
        "",
        f"{_NODES}::test_an_allocation_that_ended_in_the_lost_interval_is_released_and_credited",
    ),
    _mutant(
        "fences are raised by little",
        "database",
        "migrations/functions/restores/restore_raise_sequences.sql",
        "then 1099511627776",
        "then 1000000",
        f"{_SEQUENCES}::test_every_sequence_is_raised_once_above_what_was_drawn_since",
    ),
    _mutant(
        "a repetition raises again",
        "database",
        "migrations/functions/restores/restore_raise_sequences.sql",
        "    if raising.raised_at is not null then\n        return false;\n    end if;\n",
        "",
        f"{_SEQUENCES}::test_a_restore_that_is_repeated_raises_nothing_twice",
    ),
    _mutant(
        "epochs of nodes are used again",
        "nodes",
        "orchestrator/nodes/store/enrolment.py",
        "epoch + 1 + 1048576 * (",
        "epoch + 1 + 0 * (",
        f"{_SEQUENCES}::test_a_node_that_enrols_again_gets_an_epoch_above_those_of_the_lost_interval",
    ),
]
