"""Mutants of changes of a node: refusals, the lock, and the halves that placement follows."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMMANDS = "orchestrator/nodes/commands/updates.py"
_STORE = "orchestrator/nodes/store/updates.py"
_TESTS = "tests/nodes/test_updates.py"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"node update: {name}", "nodes", path, old, new, (f"{_TESTS}::{test}",))


MUTANTS: list[Mutant] = [
    _mutant(
        "a half larger than the node", _COMMANDS, "if half_slots > node.slot_count:", "if False:",
        "test_a_half_is_at_most_the_node",
    ),
    _mutant(
        "a retired node changes", _COMMANDS, "if state is NodeState.RETIRED:", "if False:",
        "test_a_retired_or_unknown_node_is_not_changed",
    ),
    _mutant(
        "the approved topology is contradicted", _COMMANDS, "layout.half_slots not in (None, half_slots)", "False",
        "test_an_approved_topology_moves_the_halves_and_no_one_contradicts_it",
    ),
    _mutant(
        "an approval leaves the halves", "orchestrator/nodes/commands/topologies.py",
        "NodeChanges(half_slots=layout.half_slots)", "NodeChanges()",
        "test_an_approved_topology_moves_the_halves_and_no_one_contradicts_it",
    ),
    _mutant(
        "without the node's lock", _COMMANDS, "await nodes.lock_node(tx, node_id)",
        "NodeState((await nodes.read_node(tx, node_id)).state)", "test_equal_changes_at_once_are_one_change",
    ),
    _mutant(
        "the fit stays", _STORE, '    await tx.execute("select refresh_node_fit(:node_id)", {"node_id": node_id})\n', "",
        "test_slots_lie_in_the_new_halves_and_placement_follows",
    ),
    _mutant(
        "the slots stay", _STORE, "    await tx.execute(_DIVIDE_SLOTS, divided)\n", "",
        "test_slots_lie_in_the_new_halves_and_placement_follows",
    ),
]  # fmt: skip
