"""The one word that shows a node's state: derived from what keeps the node as a whole from serving, the operator's word first."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest

from orchestrator.nodes.queries import find_node, list_nodes
from orchestrator.nodes.states import TRANSITIONS, NodeChange, NodeState, ShownState, state_after
from orchestrator.nodes.store.shown_states import NARROWED
from orchestrator.operations.execution import Context
from orchestrator.problems import InvalidState
from tests.allocations.driving import run_with
from tests.allocations.seeding import connect, seed

NO_NODE = uuid.UUID(int=0)
_TOKEN = """
insert into enrolment_tokens (node_id, token_hash, created_by, expires_at)
values (%s, sha256('a'), %s, now() + interval '1 hour')
"""
_WINDOW = """
with opened as (
    insert into maintenance_windows (starts_at, ends_at, reason, waits_for, waits_since, waits_until)
    values (now() + %(from)s * interval '1 hour', now() + %(to)s * interval '1 hour', 'm', 'start', now(),
            now() + %(from)s * interval '1 hour')
    returning id, starts_at, ends_at
), planned as (
    insert into maintenance_units (window_id, node_id, units) select id, %(node)s, %(units)s from opened
)
insert into claims (node_id, owner_kind, owner_id, units, during, fence)
select %(node)s, 'maintenance', id, %(units)s, tstzrange(starts_at, ends_at), nextval('fences') from opened
"""
_QUARANTINE = """
insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by)
select node_id, slot_index, unit, 'r', 'admin:a' from slots where node_id = %s and slot_index < %s
"""
_BURN_IN = """
insert into node_burn_ins (node_id, slots, requested_by, waits_for, waits_since, waits_until)
values (%s, '{0}', 'admin:a', 'worker', now(), now() + interval '1 hour')
"""


def maintain(connection: Any, node: Any, slots: int, starts: float = -1, ends: float = 1) -> None:
    """A window over the first slots of the node, from and until so many hours from now."""
    units = f"{{[{node.unit_base},{node.unit_base + slots})}}"
    connection.execute(_WINDOW, {"node": node.id, "units": units, "from": starts, "to": ends})
    connection.execute("select refresh_node_fit(%s)", (node.id,))


def quarantine(connection: Any, node: Any, slots: int) -> None:
    """The first slots of the node are in quarantine."""
    connection.execute(_QUARANTINE, (node.id, slots))
    connection.execute("select keep_slots_v2(%s)", (node.id,))


async def shown(context: Context, node: uuid.UUID) -> Any:
    """The word, which the node, the list and one filter of the list agree about."""
    word = (await find_node(context.database, node))["state"]
    listed = {
        state: [one.id for one in await list_nodes(context.database, state=state, region=None, after=NO_NODE, limit=9)]
        for state in ShownState
    }
    assert [state for state, found in listed.items() if node in found] == [word]
    return word


def test_a_node_that_serves_with_some_slots_is_active(database_url: str) -> None:
    node = seed(database_url).nodes[0]

    async def way(context: Context) -> None:
        assert await shown(context, node.id) == "active"
        with connect(database_url) as connection:
            maintain(connection, node, 4)
            assert await shown(context, node.id) == "active"
            quarantine(connection, node, 7)
            assert await shown(context, node.id) == "active"
            connection.execute(_BURN_IN, (node.id,))
            assert await shown(context, node.id) == "active"

    run_with(database_url, way)


def test_a_node_without_a_free_slot_is_active_too(database_url: str) -> None:
    node = seed(database_url).nodes[0]

    async def way(context: Context) -> None:
        with connect(database_url) as connection:
            maintain(connection, node, 8, 1, 2)
            ((mask,),) = connection.execute("select free_mask from nodes")
            assert mask == 0, "the window of tomorrow keeps creates without an end off"
            assert await shown(context, node.id) == "active"
            quarantine(connection, node, 4)
            assert await shown(context, node.id) == "active", "the other four serve until tomorrow"

    run_with(database_url, way)


@pytest.mark.parametrize("word", ["maintenance", "quarantined", "burn_in"])
def test_what_keeps_the_whole_node_from_serving_is_shown(database_url: str, word: str) -> None:
    node = seed(database_url).nodes[0]

    async def way(context: Context) -> None:
        with connect(database_url) as connection:
            quarantine(connection, node, 3 if word == "maintenance" else 8)
            if word == "maintenance":
                maintain(connection, node, 8)
            if word == "burn_in":
                connection.execute(_BURN_IN, (node.id,))
            assert await shown(context, node.id) == word
            for stated in ("cordoned", "draining", "retired"):
                connection.execute("update nodes set state = %s", (stated,))
                assert await shown(context, node.id) == stated, "the operator's word comes first"

    run_with(database_url, way)


def test_a_registered_node_is_enrolling_while_its_token_counts(database_url: str) -> None:
    node = seed(database_url).nodes[0]

    async def way(context: Context) -> None:
        with connect(database_url) as connection:
            connection.execute("set session_replication_role = replica")
            connection.execute("update nodes set state = 'registered'")
            assert await shown(context, node.id) == "registered"
            connection.execute(_TOKEN, (node.id, NO_NODE))
            assert await shown(context, node.id) == "enrolling"
            connection.execute("update enrolment_tokens set expires_at = now()")
            assert await shown(context, node.id) == "registered"
            connection.execute("update enrolment_tokens set expires_at = 'infinity', used_at = now()")
            assert await shown(context, node.id) == "registered"

    run_with(database_url, way)


def test_every_stored_state_is_shown_by_its_name() -> None:
    assert {state.value for state in NodeState} <= {state.value for state in ShownState}
    assert NARROWED.keys() == set(ShownState)


def test_the_transitions_are_those_of_the_changes_and_the_first_enrolment() -> None:
    reached = set()
    for change in NodeChange:
        for state in NodeState:
            with suppress(InvalidState):
                reached.add((state, state_after(change, state)))
    assert {pair for pair in reached if pair[0] is not pair[1]} | {
        (NodeState.REGISTERED, NodeState.ACTIVE),
        (NodeState.REGISTERED, NodeState.CORDONED),  # the adoption of its machine
    } == TRANSITIONS
    assert not any(before is NodeState.RETIRED for before, _ in TRANSITIONS)
