"""Mutants of switch ports: moved while the machine is off, read back, leased to one tenant, and fail-closed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PLACING = "node_agent/switches/placing.py"
_BRIDGE = "node_agent/switches/linux_bridge.py"
_RULES = "orchestrator/nodes/deploy_systems/run_rules.py"
_STORE = "orchestrator/sites/ports/store.py"
_ORDERS = "orchestrator/sites/ports/orders.py"
_COMMANDS = "orchestrator/sites/ports/commands.py"
_PLACED = "tests/switches/test_placing.py"
_CONFORMANCE = "tests/switches/test_conformance.py"
_FAULTS = "tests/sites/ports/test_faults.py"
_LIVES = "tests/sites/ports/test_lives.py"
_GUARDS = "tests/sites/ports/test_guards.py"
_SEGMENTS = "tests/sites/ports/test_segments.py"
_OPERATORS = "tests/sites/ports/test_operators.py"
_PROOFS = "tests/sites/ports/test_proofs.py"
_POWER = "tests/sites/ports/test_power.py"
_MOVED = f"{_FAULTS}::test_a_port_that_is_moved_before_power_on_keeps_the_machine_off"
_REFUSED = f"{_OPERATORS}::test_what_cannot_be_set_or_moved_is_refused_and_changes_nothing"


def _mutant(what: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"switch ports: {what}", "nodes", file, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "the answer of a switch is a proof", _PLACING,
        "            if _is_placed(found, segment, fence):\n                return found\n", "            return found\n",
        f"{_PLACED}::test_a_move_without_effect_is_none",
    ),
    _mutant(
        "an older task moves a port", _PLACING, "    if found.fence is not None and found.fence > fence:\n", "    if False:\n",
        f"{_PLACED}::test_what_is_reported_is_what_the_port_carries",
    ),
    _mutant(
        "a port with a second VLAN is placed", "node_agent/switches/contract.py",
        "self.segments == {segment.number}", "segment.number in self.segments",
        f"{_PLACED}::test_a_port_carries_one_segment_untagged_and_no_other",
    ),
    _mutant(
        "a kind that is not built is written", _PLACING, "segment.kind not in switch.kinds:", "segment.kind is None:",
        f"{_CONFORMANCE}::test_kinds_that_are_not_built_are_refused_and_change_nothing",
    ),
    _mutant(
        "a shut port is left in its segment", _BRIDGE,
        '            await self._ip("link", "set", "dev", port, "nomaster")\n', "            pass\n",
        f"{_CONFORMANCE}::test_a_port_that_is_shut_reaches_nothing",
    ),
    _mutant(
        "a port of no bridge is taken", _BRIDGE,
        "            if master is None and _ALIAS.match(link.get(\"ifalias\", \"\")):\n", "            if master is None:\n",
        f"{_CONFORMANCE}::test_an_unknown_port_is_not_guessed",
    ),
    _mutant(
        "noop says that it isolates", "node_agent/switches/noop.py", 'isolation: ClassVar[Isolation] = "none"',
        'isolation: ClassVar[Isolation] = "vlan"',
        f"{_CONFORMANCE}::test_noop_fails_the_probe_and_says_that_it_does_not_isolate",
    ),
    _mutant(
        "a machine is switched on and its ports are not read", "node_agent/site/effects.py",
        "        await self._ports.require(order.parameters.ports, self._guard(order))\n", "", _MOVED,
    ),
    _mutant(
        "a deploy system starts in any segment", _RULES,
        "        if run.step is RunStep.POWER_OFF and run.has_ports:\n", "        if False:\n",
        f"{_LIVES}::test_the_ports_are_moved_twice_in_a_life_and_by_no_verb",
    ),
    _mutant(
        "a tenant's system starts in the provisioning segment", _RULES,
        "Move.TO_TENANT if run.has_ports else Move.POWER_ON", "Move.POWER_ON",
        f"{_LIVES}::test_the_ports_are_moved_twice_in_a_life_and_by_no_verb",
    ),
    _mutant(
        "a run goes on after moves that failed", _RULES,
        "        return Next(again)\n    return _undone(run, why)\n", "        return Next(again)\n    return Next(then)\n",
        f"{_FAULTS}::test_a_tenants_system_does_not_start_before_its_segment_is_proven",
    ),
    _mutant(
        "one failed move ends the run", _RULES, "PORT_ATTEMPTS_MAX: Final = 3", "PORT_ATTEMPTS_MAX: Final = 1",
        f"{_FAULTS}::test_a_fault_that_passes_costs_attempts_and_nothing_else",
    ),
    _mutant(
        "a segment is another tenant's at once", _STORE,
        "where site_id = :site_id and free_at <= clock_timestamp()", "where site_id = :site_id and free_at is not null",
        f"{_SEGMENTS}::test_a_segment_is_in_quarantine_for_others_and_its_tenants_at_once",
    ),
    _mutant(
        "a segment is returned under other machines of its tenant", _STORE,
        "\n  and not exists (select from node_segments n where n.site_id = t.site_id and n.tenant_vlan = t.vlan)\nreturning",
        "\nreturning", f"{_SEGMENTS}::test_a_segment_is_in_quarantine_for_others_and_its_tenants_at_once",
    ),
    _mutant(
        "machines that leave at once keep the segment", _STORE,
        '        await tx.execute(_LOCK_SEGMENT, {"site_id": before.site_id, "vlan": before.tenant_vlan})\n', "        pass\n",
        f"{_SEGMENTS}::test_two_machines_that_leave_at_once_return_their_segment",
    ),
    _mutant(
        "a move that is not proven returns the segment", _ORDERS,
        '    if outcome == "completed":\n', "    if True:\n",
        f"{_FAULTS}::test_a_release_waits_for_its_switch_and_keeps_units_and_segment",
    ),
    _mutant(
        "the end of a move has no event", _ORDERS, "    if task.kind is not BmcTaskKind.MOVE_PORTS:\n", "    if True:\n",
        f"{_LIVES}::test_a_tenant_has_its_segment_until_its_last_machine_has_left_it",
    ),
    _mutant(
        "a machine with ports is rescued in the provisioning segment", "orchestrator/sites/tenancies.py",
        "    if task.type is TaskType.RESCUE and await has_ports(tx, node_id):\n", "    if False:\n",
        f"{_LIVES}::test_a_machine_whose_ports_are_moved_has_no_rescue_system",
    ),
    _mutant(
        "a tenant's machine is moved by hand", _COMMANDS,
        "        if verb in (Verb.PROVISIONING, Verb.SHUT) and not await _is_retired(tx, node_id):\n", "        if False:\n",
        f"{_OPERATORS}::test_a_tenants_machine_keeps_its_ports_and_its_segment",
    ),
    _mutant(
        "ports are moved during a run", _COMMANDS, "    await require_no_run(tx, node_id)\n", "", _REFUSED,
    ),
    _mutant(
        "the strongest port says what separates a machine", "orchestrator/sites/ports/rules.py",
        'found and all(one.isolation == "vlan" for one in found)', 'any(one.isolation == "vlan" for one in found)',
        f"{_SEGMENTS}::test_the_weakest_port_says_what_separates_a_machine",
    ),
    _mutant(
        "a failed rebuild is switched on beside BMCs", _ORDERS,
        "    if ports and task.kind in RELYING:\n", "    if False:\n",
        f"{_GUARDS}::test_no_task_of_a_run_switches_a_tenants_machine_on_in_another_segment",
    ),
    _mutant(
        "an operator switches a machine on that is not wiped", _ORDERS,
        "        tenant = await store.read_occupant(tx, task.node_id)\n", "        tenant = None\n",
        f"{_GUARDS}::test_an_operator_does_not_switch_on_a_machine_in_a_wrong_segment",
    ),
    _mutant(
        "segments are leased while those of a restore are unknown", _STORE,
        "    if await is_unknown(tx, site_id):\n        return None\n", "",
        f"{_SEGMENTS}::test_after_a_restore_no_segment_is_leased_before_every_machine_with_ports_is_known",
    ),
    _mutant(
        "a machine that came on during the move keeps its ports", "node_agent/site/ports.py",
        "        await self._require_off(order, fence, guard, power)\n        return found\n", "        return found\n",
        f"{_POWER}::test_a_machine_that_comes_on_is_in_no_segment",
    ),
    _mutant(
        "a driver that reads nothing returns a VLAN", "orchestrator/sites/ports/proofs.py",
        'if one.get("isolation") == "vlan")', "if False)",
        f"{_PROOFS}::test_a_driver_that_moves_nothing_does_not_return_the_vlan_of_a_port",
    ),
    _mutant(
        "a report of any ports is a proof", "orchestrator/sites/ports/proofs.py",
        "    if read != wanted or len(read) != len(found):\n", "    if not found:\n",
        f"{_PROOFS}::test_each_port_of_the_task_is_read_as_ordered",
    ),
    _mutant(
        "leased VLANs leave the site", _COMMANDS, "        if outside:\n", "        if False:\n",
        f"{_OPERATORS}::test_a_tenants_machine_keeps_its_ports_and_its_segment",
    ),
]  # fmt: skip
