"""Reports of faults by a tenant, and what is stored of them."""

from __future__ import annotations

import uuid
from typing import Any

from orchestrator.allocations.commands.faults import report_fault
from orchestrator.allocations.states import Symptom
from orchestrator.allocations.store.faults import Fault
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.nodes.queries import find_node
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import TENANT, operation, rows_of
from tests.allocations.seeding import Seeded
from tests.nodes.answers import body_of

FAULT = Fault(Symptom.GPU_ERROR, "XID 79\n\tGPU has fallen off the bus", {"xid": "79"})


async def send_report(
    context: Context,
    seeded: Seeded,
    allocation_id: uuid.UUID,
    *,
    replace: bool = False,
    key: str | None = None,
    fault: Fault = FAULT,
) -> Answer:
    """The tenant's report."""
    offered = await CatalogueCache(context.database, 1.0).before_refusing() if replace else None
    write = operation(seeded, key)
    return await report_fault(context, write, TENANT, seeded.tenant_id, allocation_id, fault, offered)


def code_of(answer: Answer) -> tuple[int, Any]:
    """Status and code of a refusal."""
    return answer.status, body_of(answer).get("code")


async def states_of_slots(context: Context, node_id: uuid.UUID) -> list[tuple[Any, Any]]:
    """State and reason of every slot of a node."""
    return [(slot["state"], slot["reason"]) for slot in (await find_node(context.database, node_id))["slots"]]


def types_of_events(url: str, like: str) -> list[str]:
    """Types of the events so far, in order."""
    return [row[0] for row in rows_of(url, "select event_type from outbox where event_type like %s order by id", like)]
