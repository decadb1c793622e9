"""Mutants of health probes: what an agent survives, what is a fault, what is due, and what leaves service."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PLUGINS = "node_agent/probes/plugins.py"
_KERNEL_LOG = "node_agent/probes/kernel_log.py"
_PROBE = "node_agent/probes/probe.py"
_DISKS = "node_agent/probes/disks.py"
_WIRE = "node_agent/wire/health.py"
_CHILDREN = "node_agent/discovery/children.py"
_RULES = "orchestrator/nodes/probes/rules.py"
_STORE = "orchestrator/nodes/store/probes.py"
_COMMANDS = "orchestrator/nodes/commands/probes.py"
_OF_READING = "tests/discovery/probes/test_reading.py"
_OF_RULES = "tests/discovery/probes/test_rules.py"
_OF_DUE = "tests/discovery/probes/test_due.py"
_OF_TAKING = "tests/discovery/probes/test_taking.py"


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "nodes") -> Mutant:
    return Mutant(f"probe: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a child of a plugin is left behind", _CHILDREN, "        os.killpg(child.pid, signal.SIGKILL)\n",
        "        os.kill(child.pid, signal.SIGKILL)\n", f"{_OF_READING}::test_a_plugin_that_hangs_ends_with_its_children",
        "agent",
    ),
    _mutant(
        "a plugin that failed counts", _PLUGINS, "        require_success(code)\n", "        pass\n",
        f"{_OF_READING}::test_plugins_that_do_not_answer_are_unknown", "agent",
    ),
    _mutant(
        "a file that every user may write to runs", _PLUGINS, "one.st_mode & (stat.S_IWGRP | stat.S_IWOTH)", "False",
        f"{_OF_READING}::test_plugins_say_what_is_healthy_and_what_is_not", "agent",
    ),
    _mutant(
        "a process forges an error of the driver", _KERNEL_LOG, " or int(priority) >= _KERNEL_PRIORITIES", "",
        f"{_OF_READING}::test_xids_of_the_kernels_log", "agent",
    ),
    _mutant(
        "an unread log has no errors", "node_agent/probes/hardware.py",
        "xids=None if errors is None else errors.get(gpu.address, [])", "xids=(errors or {}).get(gpu.address, [])",
        f"{_OF_READING}::test_without_the_kernels_log_xids_are_unknown", "agent",
    ),
    _mutant(
        "a report exceeds a result", _PROBE, "        if len(report.canonical()) <= REPORT_BYTES_MAX:\n", "        if True:\n",
        f"{_OF_READING}::test_the_largest_report_fits_into_a_result", "agent",
    ),
    _mutant(
        "a disk without a verdict passes", _DISKS, "        if not isinstance(passed, bool):\n", "        if False:\n",
        f"{_OF_READING}::test_a_smartctl_without_a_verdict_is_a_gap", "agent",
    ),
    _mutant(
        "a report contradicts itself", _WIRE, "    if len({item.subject for item in items}) != len(items):\n", "    if False:\n",
        f"{_OF_TAKING}::test_a_result_that_is_no_report_is_a_failed_probe",
    ),
    _mutant(
        "unknown is a fault", _RULES, '        if plugin.verdict == "fault":\n', '        if plugin.verdict != "healthy":\n',
        f"{_OF_RULES}::test_what_is_unknown_is_no_fault",
    ),
    _mutant(
        "a GPU of no known slot takes the node", _RULES,
        "for slot, known in enumerate(self.addresses[: self.slot_count]) if known == address)",
        "for slot, known in enumerate(self.addresses[: self.slot_count]) if known == address) or self.every_slot",
        f"{_OF_TAKING}::test_a_gpu_of_no_known_slot_is_shown_and_takes_none",
    ),
    _mutant(
        "an accepted count is a fault", _RULES, "    if one.value - base <= one.limit:\n", "    if one.value <= one.limit:\n",
        f"{_OF_TAKING}::test_a_returned_slot_stays_until_its_counter_moves_on",
    ),
    _mutant(
        "an accepted count outlasts a start", _RULES, "else min(count, value)\n", "else count\n",
        f"{_OF_RULES}::test_an_accepted_count_is_no_fault_until_it_is_exceeded",
    ),
    _mutant(
        "a counter that began again is a burst", _RULES, "if one.value >= earlier else one.value\n",
        "if one.value >= earlier else earlier\n", f"{_OF_RULES}::test_an_increase_between_two_reports",
    ),
    _mutant(
        "the same fault begins another quarantine", _STORE, "q.unit = s.unit and (q.returned_at is null or ",
        "q.unit = s.unit and (",
        f"{_OF_TAKING}::test_a_fault_of_a_gpu_takes_its_slot_and_the_same_fault_takes_it_once",
    ),
    _mutant(
        "a report before the return counts", _STORE, " or q.returned_at >= :issued_at))", "))",
        f"{_OF_TAKING}::test_a_report_ordered_before_the_return_does_not_count",
    ),
    _mutant(
        "the history grows", _STORE, '    await tx.execute(_FORGET, {"id": node_id, "history_max": history_max})\n', "",
        f"{_OF_TAKING}::test_the_history_is_bounded_and_newest_first",
    ),
    _mutant(
        "a release orders no probe", "orchestrator/allocations/store/claims.py",
        "    update node_health set next_at = clock_timestamp()\n", "    update node_health set next_at = next_at\n",
        f"{_OF_DUE}::test_a_release_makes_a_probe_due_also_while_one_is_open", "allocations",
    ),
    _mutant(
        "a return orders no probe", _STORE, "update node_health set next_at = clock_timestamp(), accepted",
        "update node_health set accepted", f"{_OF_TAKING}::test_a_returned_slot_stays_until_its_counter_moves_on",
    ),
    _mutant(
        "a quarantine of a probe is silent", "orchestrator/nodes/store/out_of_service.py",
        "    await append_events(tx, events)\n", "",
        f"{_OF_TAKING}::test_a_fault_of_a_gpu_takes_its_slot_and_the_same_fault_takes_it_once",
    ),
    _mutant(
        "thresholds of the model are passed over", _COMMANDS, "thresholds_for(policy.thresholds, ended.gpu_model)",
        'thresholds_for({}, ended.gpu_model)', f"{_OF_TAKING}::test_thresholds_of_the_nodes_model_decide",
    ),
]  # fmt: skip
