"""Mutants of burn-ins: what an agent finds and leaves, which report is a pass, and which burn-in permits a return."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MEMORY = "node_agent/burn_in/memory.py"
_DISK = "node_agent/burn_in/disk.py"
_CPU = "node_agent/burn_in/cpu.py"
_DCGM = "node_agent/burn_in/dcgm.py"
_TETHER = "node_agent/burn_in/tether.py"
_WHOLE = "node_agent/burn_in/burn_in.py"
_RULES = "orchestrator/nodes/burn_ins/rules.py"
_STORE = "orchestrator/nodes/store/burn_ins.py"
_COMMANDS = "orchestrator/nodes/commands/burn_ins.py"
_QUARANTINES = "orchestrator/nodes/commands/quarantines.py"
_PROBES = "orchestrator/nodes/probes/rules.py"
_OF_PARTS = "tests/node_agent/burn_in/test_parts.py"
_OF_WHOLE = "tests/node_agent/burn_in/test_whole.py"
_OF_AGENT = "tests/node_agent/burn_in/test_agent.py"
_OF_RULES = "tests/nodes/burn_ins/test_rules.py"
_OF_BURN_INS = "tests/nodes/burn_ins/test_burn_ins.py"
_OF_RETURNS = "tests/nodes/burn_ins/test_returns.py"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "nodes") -> Mutant:
    return Mutant(f"burn-in: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "memory is not read back", _MEMORY, "        if written != read:\n", "        if False:\n",
        f"{_OF_PARTS}::test_a_bit_that_flips_is_found", "agent",
    ),
    _mutant(
        "no pattern depends on the address", _MEMORY, '    "address of the block": lambda number: struct.pack("<Q", number)',
        '    "address of the block": lambda number: struct.pack("<Q", 7)',
        f"{_OF_PARTS}::test_an_address_line_that_is_stuck_is_found", "agent",
    ),
    _mutant(
        "it takes what guests need", _MEMORY, " and free() > at_first // 2 - _CHUNK:", ":",
        f"{_OF_PARTS}::test_memory_that_becomes_short_is_left_to_the_guests", "agent",
    ),
    _mutant(
        "the limit of the control group is overlooked", _MEMORY, "    return min(free, *_headrooms(root))\n", "    return free\n",
        f"{_OF_PARTS}::test_a_control_group_bounds_what_is_available", "agent",
    ),
    _mutant(
        "the disk is not compared", _DISK, "                if hashlib.sha256(aligned).digest() != digest:\n",
        "                if False:\n", f"{_OF_PARTS}::test_faults_of_a_disk_are_found", "agent",
    ),
    _mutant(
        "an error of the disk is no fault", _DISK, 'else "fault"', 'else "unknown"',
        f"{_OF_PARTS}::test_faults_of_a_disk_are_found", "agent",
    ),
    _mutant(
        "a file keeps its name", _DISK, "    path.unlink()\n", "    pass\n",
        f"{_OF_PARTS}::test_a_file_system_without_unnamed_files_or_direct_reads", "agent",
    ),
    _mutant(
        "a core that errs passes", _CPU, "        if computation() != EXPECTED:\n", "        if False:\n",
        f"{_OF_PARTS}::test_one_core_that_errs_is_named", "agent",
    ),
    _mutant(
        "a core whose process ended passes", _CPU, "    code = _UNTESTED\n", "    code = _RIGHT\n",
        f"{_OF_PARTS}::test_a_core_whose_process_ends_is_not_tested", "agent",
    ),
    _mutant(
        "a test survives its agent", _TETHER, "    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:\n",
        "    if False:\n", f"{_OF_AGENT}::test_a_killed_agent_leaves_no_file_and_no_process_and_reports_it", "agent",
    ),
    _mutant(
        "the agent overlooks its allocations", _WHOLE, "        shared = order.shared or occupied\n",
        "        shared = order.shared\n", f"{_OF_AGENT}::test_beside_an_allocation_the_bounds_are_smaller", "agent",
    ),
    _mutant(
        "DCGM touches a tenant's GPU", _DCGM, "    if not gpus:\n", "    if False:\n",
        f"{_OF_WHOLE}::test_beside_tenants_the_bounds_are_smaller_and_the_report_states_it", "agent",
    ),
    _mutant(
        "a test that DCGM failed passes", _DCGM, "    if failed:\n", "    if False:\n",
        f"{_OF_WHOLE}::test_what_dcgm_answers", "agent",
    ),
    _mutant(
        "an order without a slot is carried out", "node_agent/admission.py", "    TaskType.BURN_IN: BurnInParameters,\n", "",
        f"{_OF_AGENT}::test_orders_that_are_wrong_are_refused", "agent",
    ),
    _mutant(
        "what was not tested passes", _RULES, "    if unproven:\n", "    if False:\n",
        f"{_OF_RULES}::test_only_what_was_tested_and_is_healthy_passes",
    ),
    _mutant(
        "an occupied slot is tested", _RULES, "        if slot.quarantined and not slot.occupied and",
        "        if slot.quarantined and",
        f"{_OF_BURN_INS}::test_the_whole_node_means_every_slot_in_quarantine_without_an_allocation",
    ),
    _mutant(
        "it is ordered of an agent that lacks it", _COMMANDS, "    if known.reachable and not known.supported:\n",
        "    if False:\n", f"{_OF_BURN_INS}::test_an_agent_of_the_version_before_ends_a_request_at_once",
    ),
    _mutant(
        "a request without an answer waits for ever", _COMMANDS, "    if known.waits_until <= known.clock:\n", "    if False:\n",
        f"{_OF_BURN_INS}::test_a_request_waits_for_its_node_until_its_deadline",
    ),
    _mutant(
        "a slot that serves again is tested", _COMMANDS,
        "        planned = plan(await store.read_slots(tx, node_id), known.slots)\n",
        "        planned = Plan(tuple(known.slots), False)\n",
        f"{_OF_BURN_INS}::test_a_slot_that_returned_meanwhile_is_not_tested",
    ),
    _mutant(
        "no return needs one", _QUARANTINES, "standing.passed is None and is_faulty and", "False and",
        f"{_OF_RETURNS}::test_a_return_needs_a_burn_in_that_passed",
    ),
    _mutant(
        "an operator's quarantine needs one", _QUARANTINES, " and is_faulty and", " and",
        f"{_OF_RETURNS}::test_a_quarantine_of_an_operator_ends_by_the_operators_word",
    ),
    _mutant(
        "a pass before a fault permits a return", _STORE, "f.outcome = 'faulty' and", "false and",
        f"{_OF_RETURNS}::test_a_fault_that_a_later_burn_in_finds_voids_the_pass_before",
    ),
    _mutant(
        "a fault during an operator's quarantine counts for nothing", _QUARANTINES,
        " or found.last_fault_at is not None\n", "\n",
        f"{_OF_RETURNS}::test_a_fault_during_an_operators_quarantine_needs_one_too",
    ),
    _mutant(
        "a tenant's report during an operator's quarantine counts for nothing",
        "migrations/functions/allocations/quarantine_reported_units.sql", "set last_fault_at = clock_timestamp()",
        "set last_fault_at = null",
        f"{_OF_RETURNS}::test_a_fault_report_during_an_operators_quarantine_needs_one_too",
    ),
    _mutant(
        "DCGM lists GPUs past the deadline", _DCGM, "min(LIST_SECONDS_MAX, _left(deadline))", "LIST_SECONDS_MAX",
        f"{_OF_WHOLE}::test_the_list_of_gpus_ends_with_the_burn_in_too", "agent",
    ),
    _mutant(
        "parts run at the usual priority", "node_agent/burn_in/trial.py", "os.nice(PRIORITY_LOWEST)", "os.nice(0)",
        f"{_OF_WHOLE}::test_every_part_runs_at_the_lowest_priority", "agent",
    ),
    _mutant(
        "a disk beside tenants is burdened like one alone", "node_agent/burn_in/disk.py",
        "bytes_max // SMALLER_WHEN_SHARED", "bytes_max",
        "tests/node_agent/burn_in/test_parts.py::test_a_bound_is_a_share_and_shared_is_smaller", "agent",
    ),
    _mutant(
        "a slot with an orphan is tested", _STORE, "o.state <> 'destroyed'", "false",
        "tests/nodes/burn_ins/test_burn_ins.py::test_a_slot_with_an_orphan_is_not_tested",
    ),
    _mutant(
        "one that did not pass permits a return", _STORE, "and b.outcome = 'passed' and", "and",
        f"{_OF_RETURNS}::test_a_return_needs_a_burn_in_that_passed",
    ),
    _mutant(
        "an earlier one permits a return", _STORE,
        "and b.issued_at > :since\n                                           and not exists",
        "and b.issued_at is distinct from :since\n                                           and not exists",
        f"{_OF_RETURNS}::test_a_quarantine_that_begins_after_the_burn_in_began_needs_another",
    ),
    _mutant(
        "another fault does not void it", _PROBES, "    return [fault for fault in faults if (fault.cause.value,",
        "    return [fault for fault in () if (fault.cause.value,",
        f"{_OF_RETURNS}::test_another_fault_while_it_is_tested_makes_the_burn_in_not_count",
    ),
    _mutant(
        "the same fault voids it", _PROBES, "    return [fault for fault in faults if (fault.cause.value,",
        "    return [fault for fault in faults if (None,",
        f"{_OF_RETURNS}::test_the_same_fault_again_does_not_void_a_burn_in",
    ),
    _mutant(
        "it returns a slot despite another fault", _STORE, "  and greatest(q.quarantined_at, q.last_fault_at) < :issued_at\n",
        "  and q.quarantined_at < :issued_at\n",
        f"{_OF_RETURNS}::test_another_fault_while_it_is_tested_makes_the_burn_in_not_count",
    ),
    _mutant(
        "it ends an operator's quarantine", _STORE, " and q.source = any (:sources)", "",
        f"{_OF_RETURNS}::test_automatic_returns_what_it_tested_and_a_fault_took_out",
    ),
    _mutant(
        "a slot under test returns", _QUARANTINES, "    if standing.testing_until is not None:\n", "    if False:\n",
        f"{_OF_RETURNS}::test_a_slot_under_test_is_not_returned_by_any_door",
    ),
    _mutant(
        "a person is not waited for", _COMMANDS, ' and policy.returns == "automatic"', "",
        f"{_OF_RETURNS}::test_a_return_needs_a_burn_in_that_passed",
    ),
    _mutant(
        "the override is not on the record", _QUARANTINES, '{"without_burn_in": True} if without_burn_in else {}', "{}",
        f"{_OF_RETURNS}::test_an_operator_may_return_a_slot_without_one_and_it_is_audited",
    ),
    _mutant(
        "its history grows", _STORE, "    await tx.execute(_FORGET, {", "    _ = (_FORGET, {",
        f"{_OF_BURN_INS}::test_the_history_is_bounded_and_newest_first_and_so_are_tasks",
    ),
]  # fmt: skip
