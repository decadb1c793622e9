"""Record nodes' heartbeats and the inventories that they report."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy.exc import DBAPIError

from node_agent.protocol import Heartbeat, HeartbeatAnswer
from node_agent.wire.networks import SpanAnswer
from orchestrator.allocations.store.health import deadlines_of, note_inventory, note_silence
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.networks.store.span import find_guests_elsewhere, note_node_moved
from orchestrator.nodes.refusals import DriverRefused
from orchestrator.nodes.store.inventories import keep_inventory
from orchestrator.nodes.store.silence import mark_offline_if_silent
from orchestrator.operations.execution import Context, json_value, transact
from orchestrator.problems import OperationInProgress
from orchestrator.tasks.store.heartbeats import RESERVED_DRIVERS, NodeReport, Noted, note_heartbeat, note_heartbeats


async def record_unchanged(
    context: Context, reports: Sequence[NodeReport], *, sandbox_allowed: bool
) -> list[HeartbeatAnswer | None]:
    """Record heartbeats that change nothing but times and what the agent says of itself, in one transaction.

    None: nothing was done for this one, and `record_heartbeat` is to decide, once it is known whether the certificate counts.
    """
    firsts = {report.node_id: report for report in reversed(reports)}
    try:
        async with context.database.function_call(CallGroup.NODES) as call:
            noted = await note_heartbeats(call, list(firsts.values()), sandbox_allowed=sandbox_allowed)
    except (TransactionConflict, OperationInProgress, DBAPIError):
        return [None] * len(reports)  # one of them made the call fail: each is tried alone
    return [
        _unchanged(noted.get(report.node_id), report.heartbeat) if firsts[report.node_id] is report else None
        for report in reports
    ]


def _unchanged(noted: Noted | None, heartbeat: Heartbeat) -> HeartbeatAnswer | None:
    if noted is None:
        return None
    span = None if heartbeat.span is None else SpanAnswer(etag=noted.etag, networks=None)
    return HeartbeatAnswer(server_time=datetime.fromisoformat(noted.at), node_state=noted.state, span=span)


async def record_heartbeat(
    context: Context, node_id: UUID, heartbeat: Heartbeat, *, sandbox_allowed: bool
) -> HeartbeatAnswer:
    """The node is online from now on; if it was not, an event says so. A complete inventory is kept for the reconciler,
    and changes the health of the node's allocations. A node that connects tenant networks gets their guests on other nodes.

    Raises `DriverRefused`: the node is offline then, and its driver is recorded.
    """
    async with context.database.transaction() as tx:
        seen = await note_heartbeat(tx, node_id, heartbeat, sandbox_allowed=sandbox_allowed)
        if heartbeat.inventory is not None and seen.is_accepted:
            before = await keep_inventory(tx, node_id, heartbeat.inventory)
            if before is not None:
                await note_inventory(tx, node_id, heartbeat.inventory, before, deadlines_of(context))
        payload = {"node_id": str(node_id), "name": seen.name}
        if seen.is_accepted and not seen.was_online:
            await append_event(tx, Event(EventType.NODE_ONLINE, f"nodes/{node_id}", uuid.uuid4(), None, payload))
        elif seen.was_online and not seen.is_accepted:
            payload["last_seen_at"] = json_value(seen.last_seen_at)
            await append_event(tx, Event(EventType.NODE_OFFLINE, f"nodes/{node_id}", uuid.uuid4(), None, payload))
        if seen.has_moved:
            await note_node_moved(tx, node_id)
        span = heartbeat.span if seen.is_accepted else None
        networks = None if span is None else await find_guests_elsewhere(tx, node_id, span.etag)
    if not seen.is_accepted:
        why = f"is not its pool's, {seen.pool_driver}" if seen.pool_driver else "needs BERTH_SANDBOX_ALLOWED"
        if heartbeat.driver in RESERVED_DRIVERS:
            why = "is that of nodes without an agent"
        raise DriverRefused(f"the driver {heartbeat.driver!r} of the node {why}; start its agent with another one")
    return HeartbeatAnswer(server_time=seen.now, node_state=seen.state, span=networks)


async def mark_node_offline(context: Context, node_id: UUID, silent_seconds: float) -> bool:
    """Mark the node offline if it is still silent, evaluated after its lock; return whether it was.

    Its healthy allocations become degraded in the same transaction, each with an event for its tenant.
    """

    async def work(tx: Transaction) -> bool:
        marked = await mark_offline_if_silent(tx, node_id, silent_seconds)
        if marked is None:
            return False
        payload = {"node_id": str(node_id), "name": marked.name, "last_seen_at": json_value(marked.last_seen_at)}
        event = Event(EventType.NODE_OFFLINE, f"nodes/{node_id}", uuid4(), None, payload)
        await append_event(tx, event)
        await note_silence(tx, node_id, deadlines_of(context))
        return True

    return await transact(context, work)
