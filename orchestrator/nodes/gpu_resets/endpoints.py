"""Resets of the GPUs of a node: request one, and the history."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes.commands.gpu_resets import request_gpu_reset
from orchestrator.nodes.gpu_resets import queries
from orchestrator.nodes.gpu_resets.documents import gpu_reset_document
from orchestrator.nodes.gpu_resets.schemas import GpuReset, SlotIndex
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/nodes/{node_id}", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.post("/slots/{slot_index}/gpu-reset", response_model=GpuReset)
@requires(tenant=NO_TENANT, operator=FLEET)
async def request(node_id: UUID, slot_index: SlotIndex, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Reset the GPU of a slot that is out of service, with those that NVLink connects to it."""
    answer = await request_gpu_reset(write.context, write.operation(), write.caller.actor, node_id, slot_index)
    return answer_response(answer)


@router.get("/gpu-resets", response_model=Page[GpuReset])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(node_id: UUID, query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The resets of a node's GPUs that are kept, newest first."""
    kind = f"gpu resets of {node_id}"
    before = place_after(query.cursor, kind, UUID, None)
    found = await queries.list_gpu_resets(parts.context.database, node_id, before=before, limit=query.limit + 1)
    page = page_of(found, query.limit, kind, lambda one: one.id)
    return json_response({**page, "items": [gpu_reset_document(one) for one in page["items"]]})
