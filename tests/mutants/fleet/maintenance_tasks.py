"""Mutants of tasks of maintenance windows: when one begins, that it runs once, and what a failure changes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PLUGINS = "node_agent/maintenance/plugins.py"
_OBSTACLE = "migrations/functions/maintenance/maintenance_task_obstacle.sql"
_ADVANCE = "orchestrator/maintenance/commands/advance.py"
_WINDOWS = "orchestrator/maintenance/commands/windows.py"
_RULES = "orchestrator/nodes/maintenance_tasks/rules.py"
_COMMANDS = "orchestrator/nodes/commands/maintenance_tasks.py"
_ENDING = "orchestrator/nodes/maintenance_tasks/ending.py"
_STORE = "orchestrator/nodes/store/maintenance_tasks.py"
_OF_AGENT = "tests/node_agent/maintenance_plugins/test_agent.py"
_OF_PLUGINS = "tests/node_agent/maintenance_plugins/test_plugins.py"
_OF_TASKS = "tests/nodes/maintenance_tasks/test_tasks.py"
_OF_NEIGHBOURS = "tests/nodes/maintenance_tasks/test_neighbours.py"
_OF_KINDS = "tests/nodes/maintenance_tasks/test_kinds.py"
_NOT_PROVEN = f"{_OF_TASKS}::test_what_began_and_did_not_complete_keeps_its_units_out"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "nodes") -> Mutant:
    return Mutant(f"maintenance task: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a reboot on the same boot id has completed", _PLUGINS, " or begun == boot_id()", "",
        f"{_OF_AGENT}::test_a_declared_reboot_has_completed_if_the_boot_id_changed", "agent",
    ),
    _mutant(
        "a reboot that was not declared has completed", _PLUGINS, "declared is None or begun is None", "begun is None",
        f"{_OF_AGENT}::test_a_reboot_that_was_not_declared_is_an_interruption", "agent",
    ),
    _mutant(
        "the report precedes the reboot", _PLUGINS, "            if self._declared(task_id) is not None:\n",
        "            if False:\n",
        f"{_OF_PLUGINS}::test_a_declared_reboot_that_does_not_come_is_a_failure", "agent",
    ),
    _mutant(
        "a plugin outlasts the agent", _PLUGINS, "run_bounded(tethered(str(path)),", "run_bounded((str(path),),",
        f"{_OF_AGENT}::test_a_killed_agent_ends_the_plugin_and_reports_it_interrupted", "agent",
    ),
    _mutant(
        "a plugin runs beside an allocation", _PLUGINS, "        if occupied:\n", "        if False:\n",
        f"{_OF_AGENT}::test_what_is_not_installed_or_not_safe_is_not_run", "agent",
    ),
    _mutant(
        "a file that every user may write to is run", _PLUGINS, "            require_safe(path)\n", "            pass\n",
        f"{_OF_AGENT}::test_what_is_not_installed_or_not_safe_is_not_run", "agent",
    ),
    _mutant(
        "it begins beside a guest that is not cleaned up", _OBSTACLE,
        "c.closed_at is null and c.occupied and c.owner_id <> p_window", "c.closed_at is null and false",
        f"{_OF_TASKS}::test_units_of_an_allocation_delay_the_task_until_they_are_clean",
    ),
    _mutant(
        "the task of another window is not seen", _OBSTACLE, "m.state = 'running' and m.window_id <> p_window", "false",
        f"{_OF_NEIGHBOURS}::test_a_second_window_of_a_node_waits_for_the_task_of_the_first",
    ),
    _mutant(
        "evidence is longer than the table allows", _ENDING, "    verdict = verdict.bounded()\n", "",
        f"{_OF_NEIGHBOURS}::test_a_report_as_long_as_it_may_be_ends_the_task",
    ),
    _mutant(
        "an error of one item stops the sweep", "worker/sweepers/maintenance.py", 'isolate_every_failure("maintenance_tasks"',
        'isolate_failure("maintenance_tasks"', f"{_OF_NEIGHBOURS}::test_an_item_that_cannot_be_read_stops_no_other",
    ),
    _mutant(
        "an allocation starts on quarantined units", "migrations/functions/allocations/start_waiting.sql",
        "s.state = 'out_of_service' and waiting.units @> s.unit", "false",
        "tests/reservations/turning_over/test_waiting_for_units.py::test_units_that_are_out_of_service_are_not_free",
    ),
    _mutant(
        "a node whose units are out of service is looked for", "orchestrator/reservations/store/starting.py",
        "s.state = 'out_of_service' and c.units @> s.unit)\nlimit", "false)\nlimit",
        "tests/reservations/turning_over/test_waiting_for_units.py::test_units_that_are_out_of_service_are_not_free",
    ),
    _mutant(
        "it begins beside an orphan", _OBSTACLE, "o.state <> 'destroyed' and wanted @> s.unit", "false",
        f"{_OF_TASKS}::test_an_orphan_on_a_unit_delays_the_task",
    ),
    _mutant(
        "it begins beside a reset of GPUs", _OBSTACLE, "r.node_id = p_node and r.ended_at is null", "false",
        f"{_OF_TASKS}::test_a_running_task_a_burn_in_and_a_reset_exclude_each_other",
    ),
    _mutant(
        "its units are not occupied", _STORE, "    await tx.execute(_OCCUPY, values)\n", "",
        f"{_OF_TASKS}::test_a_task_runs_once_its_units_are_held_and_the_units_return_after_it",
    ),
    _mutant(
        "its units stay occupied", _STORE, "update claims set occupied = false, occupied_until = clock_timestamp()\n",
        "update claims set occupied = occupied\n",
        f"{_OF_TASKS}::test_a_task_runs_once_its_units_are_held_and_the_units_return_after_it",
    ),
    _mutant(
        "the window ends before it", _ADVANCE, "        elif await tasks_store.find_running(tx, window_id) is not None:\n",
        "        elif False:\n",
        f"{_OF_TASKS}::test_a_window_does_not_end_before_its_task_and_no_other_gets_the_units",
    ),
    _mutant(
        "an operator ends the window before it", _WINDOWS, "        if running is not None:\n", "        if False:\n",
        f"{_OF_TASKS}::test_a_task_runs_once_its_units_are_held_and_the_units_return_after_it",
    ),
    _mutant(
        "the units return after a failure", _ENDING, "    if verdict.state in NOT_PROVEN and", "    if False and", _NOT_PROVEN
    ),
    _mutant(
        "an interruption is no failure", _RULES, "frozenset({WindowTaskState.FAILED, WindowTaskState.INTERRUPTED})",
        "frozenset({WindowTaskState.FAILED})", _NOT_PROVEN,
    ),
    _mutant(
        "what the node never read has failed", _RULES, " or (ended.state is TaskState.EXPIRED and not ended.dispatched)", "",
        f"{_OF_TASKS}::test_a_task_that_the_node_never_read_has_not_run_and_one_that_it_read_has_failed",
    ),
    _mutant(
        "faults of the window's slots are overlooked", _RULES, "    if faulty:\n", "    if False:\n",
        f"{_OF_KINDS}::test_a_burn_in_and_a_health_probe_are_judged",
    ),
    _mutant(
        "GPUs of other slots are reset too", _RULES, "    if others:\n", "    if False:\n",
        f"{_OF_KINDS}::test_gpus_that_the_window_does_not_have_keep_theirs_from_being_reset",
    ),
]  # fmt: skip
