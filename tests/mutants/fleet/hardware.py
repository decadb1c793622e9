"""Mutants of the history of hardware: places, contradictions, bounds, entries of slots, repairs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHANGES = "migrations/functions/hardware/hardware_changes.sql"
_SETTLE = "migrations/functions/hardware/settle_places.sql"
_PLACE = "migrations/functions/hardware/place_hardware.sql"
_NOTE = "migrations/functions/hardware/note_hardware.sql"
_FAULTS = "migrations/functions/hardware/note_faults.sql"
_LOCK = "migrations/functions/hardware/lock_serials.sql"
_TRIGGER = "migrations/functions/hardware/note_quarantine.sql"
_RULES = "orchestrator/nodes/hardware/rules.py"
_STORE = "orchestrator/nodes/store/hardware.py"
_COMMANDS = "orchestrator/nodes/commands/repairs.py"
_TOPOLOGIES = "orchestrator/nodes/commands/topologies.py"
_PROBES = "orchestrator/nodes/commands/probes.py"
_HISTORY = "tests/hardware/test_history.py"
_BOUNDS = "tests/hardware/test_bounds.py"
_REPAIRS = "tests/hardware/test_repairs.py"
_MODEL = "tests/hardware/test_moves.py"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"hardware: {name}", "nodes", path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "berth doctor names every piece as contested", "berth/cli/deployment/hardware_finding.py",
        "where p.contested_since is not null group by", "where true group by",
        "tests/hardware/test_doctor_finding.py::test_contested_serial_numbers_are_named_until_one_node_reports_each",
    ),
    _mutant(
        "a second node takes the serial number", _CHANGES, "when o.serial is null and e.rivals > 0 then 'contested'",
        "when o.serial is null and e.rivals > 0 then 'moved'",
        f"{_HISTORY}::test_two_nodes_that_report_one_serial_number_contradict_each_other",
    ),
    _mutant(
        "a contradiction is not shown", _SETTLE, "case when c.nodes > 1 then coalesce", "case when c.nodes > 2 then coalesce",
        f"{_MODEL}::test_reports_in_any_order_are_placed_as_the_model_says",
    ),
    _mutant(
        "a node that is offline still reports", _SETTLE,
        "o.missing_since is null and n.online and", "o.missing_since is null and",
        f"{_HISTORY}::test_hardware_of_a_node_that_is_offline_has_moved",
    ),
    _mutant(
        "the last place is forgotten", _SETTLE, "e.node_id <> p_node and e.missing_since is null);", "e.node_id is not null);",
        f"{_MODEL}::test_reports_in_any_order_are_placed_as_the_model_says",
    ),
    _mutant(
        "a GPU of a guest is missing", _CHANGES, " and not o.positions && p_unread", "",
        f"{_HISTORY}::test_a_gpu_that_a_guest_holds_is_not_missing",
    ),
    _mutant(
        "another slot is no move", _CHANGES, "when o.slots <> r.slots then 'slot' end", "end",
        f"{_HISTORY}::test_gpus_that_change_slots_have_moved",
    ),
    _mutant(
        "serial numbers are not locked", _LOCK, "perform pg_advisory_xact_lock(hashtext('hardware'), number);", "null;",
        f"{_REPAIRS}::test_of_two_repairs_at_once_one_is_opened",
    ),
    _mutant(
        "a node writes without a bound", _PLACE, "> hardware_room(p_node, p_actor)", "> 100000",
        f"{_BOUNDS}::test_a_node_writes_at_most_512_entries_in_30_days",
    ),
    _mutant(
        "missing places without a bound", _PLACE, "offset places_max", "offset 100000",
        f"{_BOUNDS}::test_what_a_node_no_longer_has_is_bounded",
    ),
    _mutant(
        "faults without a bound", _FAULTS, "limit greatest(hardware_room(p_node, p_actor), 0)", "limit 1000",
        f"{_BOUNDS}::test_faults_that_come_and_go_are_bounded",
    ),
    _mutant(
        "a fault is noted with each report", _FAULTS, "interval '24 hours'", "interval '0 hours'",
        f"{_HISTORY}::test_faults_of_probes_and_their_quarantines_are_noted_once",
    ),
    _mutant(
        "a quarantine is noted of what was there before", _NOTE,
        "p.missing_since is null or not exists", "p.missing_since is not null or not exists",
        f"{_MODEL}::test_reports_in_any_order_are_placed_as_the_model_says",
    ),
    _mutant(
        "the return is not noted", _TRIGGER,
        "elsif old.returned_at is null and new.returned_at is not null then", "elsif false then",
        f"{_HISTORY}::test_a_gpu_that_comes_back_is_seen_again",
    ),
    _mutant(
        "an approval moves nothing", _TOPOLOGIES,
        "            await place(tx, node_id, found, found, len(layout.addresses))\n", "",
        f"{_HISTORY}::test_an_approval_places_the_gpus_in_their_slots",
    ),
    _mutant(
        "faults of probes are not noted", _PROBES, "    await _note(tx, node_id, fresh)\n", "",
        f"{_HISTORY}::test_faults_of_probes_and_their_quarantines_are_noted_once",
    ),
    _mutant(
        "one serial number of many is a piece", _RULES, "or len(set(spelt)) == 1 ", "",
        f"{_BOUNDS}::test_serial_numbers_are_spelt_in_one_way",
    ),
    _mutant(
        "a cut list names what is missing", _RULES, "and not left_out & {f\"{kind}s\", \"gaps\"}", "",
        f"{_BOUNDS}::test_nothing_is_missing_of_what_could_not_be_read",
    ),
    _mutant(
        "a repair is closed twice", _COMMANDS, "        if known.closed_at is not None:\n", "        if False:\n",
        f"{_REPAIRS}::test_a_repair_is_opened_and_closed_once",
    ),
    _mutant(
        "open repairs are deleted", _STORE,
        "hardware_repairs where closed_at <", "hardware_repairs where coalesce(closed_at, '-infinity') <",
        f"{_REPAIRS}::test_history_and_closed_repairs_are_kept_for_their_retention",
    ),
]  # fmt: skip
