"""Slots of a node: take one out of service, return it, and the history of both."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes import queries
from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.nodes.quarantine_documents import quarantine_document
from orchestrator.nodes.quarantine_schemas import Quarantine, QuarantineQuery, QuarantineSlot, ReturnSlot, SlotIndex
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.get("/quarantines", response_model=Page[Quarantine])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(
    node_id: UUID, query: Annotated[QuarantineQuery, Query()], caller: AdminCaller, parts: Parts
) -> Response:
    """The slots of a node that are in quarantine, oldest first."""
    kind = f"quarantines of {node_id}"
    after, limit = identified_page(query, kind)
    found = await queries.list_quarantines_of_node(
        parts.context.database, node_id, every=query.every, after=after, limit=limit
    )
    page = page_of(found, query.limit, kind, lambda quarantine: quarantine.id)
    return json_response({**page, "items": [quarantine_document(one) for one in page["items"]]})


@router.post("/slots/{slot_index}/quarantine", response_model=Quarantine)
@requires(tenant=NO_TENANT, operator=FLEET)
async def quarantine(node_id: UUID, slot_index: SlotIndex, body: QuarantineSlot, write: AdminWrite) -> Response:
    """Take a slot out of service: nothing new is placed on it; an allocation on it stays until its release."""
    answer = await quarantine_slot(
        write.context, write.operation(body), write.actor, node_id, slot_index,
        reason=body.reason, evidence=body.evidence,
    )  # fmt: skip
    return answer_response(answer)


@router.post("/slots/{slot_index}/return", response_model=Quarantine)
@requires(tenant=NO_TENANT, operator=FLEET)
async def return_(node_id: UUID, slot_index: SlotIndex, body: ReturnSlot, write: AdminWrite) -> Response:
    """Return a slot from quarantine into service; after a fault of the hardware a burn-in must have passed."""
    answer = await return_slot(
        write.context, write.operation(body), write.actor, node_id, slot_index,
        note=body.note, without_burn_in=body.without_burn_in,
    )  # fmt: skip
    return answer_response(answer)
