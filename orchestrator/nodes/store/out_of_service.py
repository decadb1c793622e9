"""The one door through which processes of Berth take slots out of service: quarantine, event and audit together."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.store.quarantines import (
    NewQuarantine,
    Source,
    add_evidence,
    begin_quarantines,
    sound_slots,
)
from orchestrator.tenants.principals import Actor


async def take_out_of_service(
    tx: Transaction, node_id: UUID, begun: Sequence[NewQuarantine], actor: Actor, source: Source
) -> None:
    """Put slots of a node into quarantine; the caller holds its lock and found no open quarantine of any."""
    if not begun:
        return
    subject = f"nodes/{node_id}"
    await begin_quarantines(tx, node_id, begun, by=f"{actor.kind.value}:{actor.id}", source=source)
    said = [{"slot": one.slot_index, "reason": one.reason} for one in begun]
    events = [
        Event(EventType.NODE_SLOT_QUARANTINED, subject, uuid4(), None, {"node_id": node_id, **one, "source": source})
        for one in said
    ]
    await append_events(tx, events)
    for one in said:
        await audit.record(tx, actor, "node.slot_quarantine", subject, one, None)


async def take_node_out_of_service(
    tx: Transaction, node_id: UUID, reason: str, evidence: str, actor: Actor, source: Source
) -> None:
    """Put every slot of a locked node into quarantine. One that is there already gets the evidence."""
    await add_evidence(tx, node_id, f"{reason}\n{evidence}")
    begun = [NewQuarantine(index, unit, reason, evidence) for index, unit in await sound_slots(tx, node_id)]
    await take_out_of_service(tx, node_id, begun, actor, source)
