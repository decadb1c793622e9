"""Mutants of the states of nodes: what is shown, which transitions are legal, and what a drain does."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SHOWN = "orchestrator/nodes/store/shown_states.py"
_DRAINS = "orchestrator/nodes/commands/drains.py"
_STORE = "orchestrator/nodes/store/drains.py"
_TRIGGER = "migrations/functions/nodes/refuse_illegal_node_state.sql"
_OF_STATES = "tests/nodes/states/test_shown_states.py"
_OF_DRAINS = "tests/nodes/states/test_drains.py"
_OF_SLOTS = "tests/nodes/states/test_slots_from_topology.py"
_OF_TRIGGERS = "tests/schema/test_triggers.py::test_nodes_take_legal_transitions_only"


def _mutant(name: str, path: str, old: str, new: str, test: str) -> Mutant:
    return Mutant(f"node states: {name}", "nodes", path, old, new, (test,))


MUTANTS: list[Mutant] = [
    _mutant(
        "a node with some slots in service is in quarantine",
        _SHOWN,
        "bool_or(not one.stopped and not one.maintained)",
        "bool_and(not one.stopped and not one.maintained)",
        f"{_OF_STATES}::test_a_node_without_a_free_slot_is_active_too",
    ),
    _mutant(
        "a window of tomorrow counts",
        _SHOWN,
        " and c.during @> clock_timestamp()",
        "",
        f"{_OF_STATES}::test_a_node_without_a_free_slot_is_active_too",
    ),
    _mutant(
        "a node under test is in quarantine",
        _SHOWN,
        "b.node_id = nodes.id and b.ended_at is null)",
        "b.node_id = nodes.id and b.ended_at is not null)",
        f"{_OF_STATES}::test_what_keeps_the_whole_node_from_serving_is_shown",
    ),
    _mutant(
        "a token that is over counts",
        _SHOWN,
        " and t.expires_at > clock_timestamp()",
        "",
        f"{_OF_STATES}::test_a_registered_node_is_enrolling_while_its_token_counts",
    ),
    _mutant(
        "the list derives no state",
        "orchestrator/nodes/store/nodes.py",
        "literal_column(SHOWN_STATE) == state.value",
        "nodes.c.state == state.value",
        f"{_OF_STATES}::test_what_keeps_the_whole_node_from_serving_is_shown",
    ),
    _mutant("a retired node comes back", _TRIGGER, "('draining', 'retired')", "('retired', 'active')", _OF_TRIGGERS),
    _mutant(
        "no tenant is notified of a drain",
        _DRAINS,
        "        await _notify(tx, node_id, EventType.ALLOCATION_NODE_DRAINING, drain.described(), operation)\n",
        "",
        f"{_OF_DRAINS}::test_each_tenant_on_the_node_is_notified_of_the_deadline",
    ),
    _mutant(
        "no tenant is notified of its end",
        _DRAINS,
        "            await _notify(tx, node_id, EventType.ALLOCATION_NODE_DRAIN_CANCELLED, {}, operation)\n",
        "            pass\n",
        f"{_OF_DRAINS}::test_an_operator_ends_a_drain_and_tenants_are_notified",
    ),
    _mutant(
        "a drain moves nothing",
        _DRAINS,
        "        await _move(tx, node_id, places, drain)\n",
        "",
        f"{_OF_DRAINS}::test_reservations_move_and_those_without_a_place_remain",
    ),
    _mutant(
        "the same order notifies again",
        _DRAINS,
        "(order.is_empty or order == known.order)",
        "order.is_empty",
        f"{_OF_DRAINS}::test_the_same_order_changes_nothing_and_another_one_notifies_again",
    ),
    _mutant(
        "no order takes the deadline back",
        _DRAINS,
        "(order.is_empty or order == known.order)",
        "order == known.order",
        f"{_OF_DRAINS}::test_the_same_order_changes_nothing_and_another_one_notifies_again",
    ),
    _mutant(
        "an overdue drain releases without an order",
        _STORE,
        "where d.node_id = :node_id and d.overdue_at is not null and d.at_deadline = 'release')",
        "where d.node_id = :node_id and d.overdue_at is not null)",
        f"{_OF_DRAINS}::test_an_overdue_drain_is_announced_once_and_ends_nothing",
    ),
    _mutant(
        "a drain releases before it is announced",
        _STORE,
        "where d.node_id = :node_id and d.overdue_at is not null and d.at_deadline = 'release')",
        "where d.node_id = :node_id and d.at_deadline = 'release')",
        f"{_OF_DRAINS}::test_allocations_are_released_at_the_deadline_if_that_was_ordered",
    ),
    _mutant(
        "a drain that was given up releases",
        _DRAINS,
        "        if not await store.is_releasing(tx, node_id):\n",
        "        if False:\n",
        f"{_OF_DRAINS}::test_an_operator_ends_a_drain_and_tenants_are_notified",
    ),
    _mutant(
        "the role fleet orders releases",
        "orchestrator/nodes/endpoints.py",
        "if wanted.at_deadline is AtDeadline.RELEASE and write.caller.role",
        "if False and write.caller.role",
        f"{_OF_DRAINS}::test_the_role_fleet_orders_no_release",
    ),
    _mutant(
        "a deadline in the past is accepted",
        "orchestrator/nodes/drains/rules.py",
        "elif not now < self.deadline <=",
        "elif not self.deadline <=",
        f"{_OF_DRAINS}::test_an_impossible_order_changes_nothing",
    ),
    _mutant(
        "a node without slots is not discovered",
        _SHOWN,
        "t.node_id = nodes.id and t.found is not null)",
        "t.node_id = nodes.id and t.found is null)",
        f"{_OF_SLOTS}::test_the_approval_of_its_topology_makes_its_slots",
    ),
    _mutant(
        "the worker approves what nothing was declared of",
        "orchestrator/nodes/topology/rules.py",
        "    if not profile.slot_count:\n",
        "    if False:\n",
        f"{_OF_SLOTS}::test_the_worker_approves_no_topology_of_a_node_without_slots",
    ),
    _mutant(
        "slots are made without their fit",
        "orchestrator/nodes/store/nodes.py",
        "    await keep_slots(tx, node_id)\n",
        "",
        f"{_OF_SLOTS}::test_the_approval_of_its_topology_makes_its_slots",
    ),
    _mutant(
        "an orphan is on no slot that the approval makes",
        "orchestrator/nodes/store/nodes.py",
        "    await tx.execute(_SPREAD_ORPHANS, made)\n",
        "",
        f"{_OF_SLOTS}::test_no_slot_with_an_orphan_is_placeable_after_the_approval",
    ),
    _mutant(
        "an orphan is destroyed on no slots",
        "orchestrator/nodes/commands/orphans.py",
        "        if not locked.orphan.slots:\n",
        "        if False:\n",
        f"{_OF_SLOTS}::test_no_slot_with_an_orphan_is_placeable_after_the_approval",
    ),
    _mutant(
        "the worker reads what its role may not",
        "orchestrator/nodes/store/orphans.py",
        '_PLACE = "select name, slot_count from nodes where id = :id"',
        '_PLACE = "select name, slot_count, exists (select from enrolment_tokens) from nodes where id = :id"',
        "tests/allocations/test_orphans.py::test_each_process_does_its_part_under_its_own_role",
    ),
    _mutant(
        "a drain overlooks allocations behind many claims",
        _STORE,
        "and owner_kind = 'allocation')) order by id\n",
        "and owner_kind = 'allocation' and id <= (select min(id) + 500 from claims where node_id = :node_id))) order by id\n",
        f"{_OF_DRAINS}::test_a_drain_reaches_what_lies_behind_many_claims",
    ),
    _mutant(
        "claims that stay count as moves",
        "orchestrator/maintenance/store.py",
        " and (not :of_a_sku or r.sku is not null)",
        " and (:of_a_sku or true)",
        f"{_OF_DRAINS}::test_a_drain_reaches_what_lies_behind_many_claims",
    ),
    _mutant(
        "a drain moves without a bound",
        _DRAINS,
        "limit=rules.MOVES_MAX",
        "limit=1000",
        f"{_OF_DRAINS}::test_one_drain_moves_a_bounded_number",
    ),
    _mutant(
        "the same order is refused after its deadline",
        _DRAINS,
        "        known = await store.read_drain(tx, node_id)\n        goes_on",
        "        order.require_possible(await windows.read_clock(tx))\n        known = await store.read_drain(tx, node_id)\n"
        "        goes_on",
        f"{_OF_DRAINS}::test_the_same_order_changes_nothing_after_its_deadline_too",
    ),
    _mutant(
        "releases that fail keep others off",
        "worker/sweepers/maintenance.py",
        "found[-1].claim_id if len(found) == self._limit else 0",
        "0",
        "tests/nodes/states/test_sweeping.py::test_a_release_that_fails_keeps_none_of_the_others_off",
    ),
    _mutant(
        "a topology without GPUs is approved",
        "orchestrator/nodes/topology/rules.py",
        "if slot_count == 0 and not 1 <= len",
        "if slot_count == 0 and not 0 <= len",
        f"{_OF_SLOTS}::test_a_topology_without_gpus_is_not_approved",
    ),
    _mutant(
        "a node without slots can be held",
        "migrations/functions/holds/named_units.sql",
        "n.id = a.id and n.state <> 'retired' and n.slot_count > 0",
        "n.id = a.id and n.state <> 'retired'",
        f"{_OF_SLOTS}::test_what_a_node_without_slots_takes",
    ),
    _mutant(
        "a drain that was given up stays",
        "migrations/functions/nodes/forget_drain.sql",
        "    delete from node_drains where node_id = new.id;\n",
        "",
        f"{_OF_DRAINS}::test_an_operator_ends_a_drain_and_tenants_are_notified",
    ),
]
