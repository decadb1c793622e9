"""Mutants of discovery: what an agent reads and survives, what is due, approved, and out of service."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_READING = "node_agent/discovery/reading.py"
_CHILDREN = "node_agent/discovery/children.py"
_NVML = "node_agent/discovery/nvml.py"
_DISCOVER = "node_agent/discovery/discover.py"
_RULES = "orchestrator/nodes/topology/rules.py"
_STORE = "orchestrator/nodes/store/topologies.py"
_TASKS = "orchestrator/tasks/store/node_tasks.py"
_SLOTS = "migrations/functions/nodes/keep_slots_v2.sql"
_COMMANDS = "orchestrator/nodes/commands/topologies.py"
_OF_HARDWARE = "tests/discovery/test_hardware.py"
_OF_NVML = "tests/discovery/test_nvml.py"
_OF_RULES = "tests/discovery/test_rules.py"
_OF_TAKING = "tests/discovery/test_taking.py"
# Of the statement that finds what is due; the one under the lock has the same condition.
_FIRST = (
    "where n.state not in ('registered', 'retired') and n.online and n.identity_conflict_at is null\n"
    "  and n.driver is distinct from 'redfish'\n"
    "  and (t.node_id is null\n       or "
)


def _mutant(name: str, path: str, old: str, new: str, test: str, noun: str = "nodes") -> Mutant:
    return Mutant(f"discovery: {name}", noun, path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a FIFO blocks", _READING, "os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC", "os.O_RDWR | os.O_CLOEXEC",
        f"{_OF_HARDWARE}::test_a_fifo_does_not_block", "agent",
    ),
    _mutant(
        "a large file is taken", _READING, "        if len(data) > FILE_BYTES_MAX:\n", "        if False:\n",
        f"{_OF_HARDWARE}::test_a_large_file_is_not_taken", "agent",
    ),
    _mutant(
        "an address keeps its capitals", _READING, '{domain:04x}:{bus:02x}', '{domain:04X}:{bus:02X}',
        f"{_OF_HARDWARE}::test_addresses_have_one_spelling", "agent",
    ),
    _mutant(
        "a topology exceeds a result", _DISCOVER, "    if len(topology.canonical()) <= TOPOLOGY_BYTES_MAX:\n", "    if True:\n",
        f"{_OF_HARDWARE}::test_the_largest_topology_fits_into_a_result", "agent",
    ),
    _mutant(
        "a child is left behind", _CHILDREN, "        os.killpg(child.pid, signal.SIGKILL)\n", "        pass\n",
        f"{_OF_NVML}::test_a_hung_call_ends_within_its_deadline", "agent",
    ),
    _mutant(
        "a gap of MIG indices is the end", _NVML, "            continue  # indices have gaps\n", "            break\n",
        f"{_OF_NVML}::test_indices_of_mig_have_gaps", "agent",
    ),
    _mutant(
        "a GPU of a guest is lost", _DISCOVER, "    if answered and gpu.driver == _NVIDIA_DRIVER:\n", "    if answered:\n",
        f"{_OF_NVML}::test_a_gpu_of_a_guest_is_not_lost", "agent",
    ),
    _mutant(
        "a silent library loses every GPU", _DISCOVER, "    if answered and gpu.driver == _NVIDIA_DRIVER:\n",
        "    if gpu.driver == _NVIDIA_DRIVER:\n", f"{_OF_NVML}::test_a_hung_call_ends_within_its_deadline", "agent",
    ),
    _mutant(
        "an unread GPU is missing", _RULES,
        '        elif not any(gpu.address in subject or subject == "gaps" for subject in unread):\n',
        "        else:\n", f"{_OF_RULES}::test_what_is_unknown_is_no_drift",
    ),
    _mutant(
        "an unknown model equals a profile", _RULES, "layout is None or layout.gpu_model is None or", "layout is None or",
        f"{_OF_RULES}::test_an_unknown_model_equals_no_profile",
    ),
    _mutant(
        "any number of GPUs is approved", _RULES, "    if slot_count not in (0, len(layout.addresses)):\n", "    if False:\n",
        f"{_OF_TAKING}::test_a_topology_of_other_slots_cannot_be_approved",
    ),
    _mutant(
        "a digest is not compared", _COMMANDS, "        if known.found_digest != digest:\n", "        if False:\n",
        f"{_OF_TAKING}::test_an_operator_approves_what_was_found_last",
    ),
    _mutant(
        "drift leaves slots in service", _STORE, "    await keep_slots(tx, node_id)\n", "",
        f"{_OF_TAKING}::test_drift_takes_a_slot_and_a_later_equal_discovery_gives_it_back",
    ),
    _mutant(
        "the end of a drift frees the slot of an orphan", _SLOTS, "then orphaned\n", "then null\n",
        f"{_OF_TAKING}::test_a_slot_with_an_orphan_and_a_drift_serves_when_both_have_ended",
    ),
    _mutant(
        "a second discovery is issued", _STORE, _FIRST + "t.waits_for is null and (t.next_at", _FIRST + "(t.next_at",
        f"{_OF_TAKING}::test_a_discovery_is_due_at_first_after_a_start_after_an_enrolment_and_daily",
    ),
    _mutant(
        "a start of the agent is not noticed", _STORE,
        "t.agent_run is distinct from n.agent_run))\norder by", "false))\norder by",
        f"{_OF_TAKING}::test_a_discovery_is_due_at_first_after_a_start_after_an_enrolment_and_daily",
    ),
    _mutant(
        "finished tasks stay for ever", _TASKS, "    await tx.execute(_DELETE, {\"id\": previous_task})\n", "",
        f"{_OF_TAKING}::test_a_discovery_is_due_at_first_after_a_start_after_an_enrolment_and_daily",
    ),
    _mutant(
        "a race takes a result in twice", _STORE,
        "where t.node_id = :id and t.waits_for is not null and (k.id is null", "where t.node_id = :id and (k.id is null",
        f"{_OF_TAKING}::test_a_result_that_is_no_topology_is_a_failed_discovery",
    ),
]  # fmt: skip
