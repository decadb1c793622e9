"""Mutants of quarantines: what a slot keeps, when it returns, and what is announced."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STORE = "migrations/functions/nodes/keep_slots_v2.sql"
_COMMANDS = "orchestrator/nodes/commands/quarantines.py"
_TESTS = "tests/nodes/test_quarantines.py"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"quarantine: {name}", "nodes", file, old, new, (f"{_TESTS}::{test}",))


MUTANTS: list[Mutant] = [
    _mutant(
        "placement does not know it", _STORE,
        "    perform refresh_node_fit(p_node);\n", "",
        "test_nothing_new_is_placed_on_it_until_it_is_returned",
    ),
    _mutant(
        "an orphan's slot returns with the quarantine", _STORE,
        "from node_orphans o where o.node_id = s.node_id", "from node_orphans o where false",
        "test_a_slot_with_an_orphan_serves_again_only_when_both_are_gone",
    ),
    _mutant(
        "an ended quarantine still counts", _STORE, "where q.unit = s.unit and q.returned_at is null)",
        "where q.unit = s.unit limit 1)",
        "test_nothing_new_is_placed_on_it_until_it_is_returned",
    ),
    _mutant(
        "a repetition begins another", _COMMANDS, "        if found is None:\n", "        if True:\n",
        "test_a_repetition_changes_nothing_and_a_return_happens_once",
    ),
    _mutant(
        "a retired node's slots are taken", _COMMANDS, "    if state is NodeState.RETIRED:\n", "    if False:\n",
        "test_the_slots_of_a_retired_node_are_refused",
    ),
]  # fmt: skip
