"""Lists of accepted firmware, for operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes.commands.firmware_lists import delete_firmware_list, put_firmware_list
from orchestrator.nodes.firmware import queries
from orchestrator.nodes.firmware.documents import list_document
from orchestrator.nodes.firmware.schemas import FirmwareList, PutFirmwareList
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/firmware-lists", tags=["admin: sites"], responses=PROBLEM_RESPONSES)


@router.put("", response_model=FirmwareList)
@requires(tenant=NO_TENANT, operator=FLEET)
async def put(body: PutFirmwareList, write: AdminWrite) -> Response:
    """Set the accepted firmware of a model of machines: the list replaces the one before, and counts at the next release."""
    components = [one.model_dump(mode="json") for one in body.components]
    answer = await put_firmware_list(
        write.context, write.operation(body), write.actor, vendor=body.vendor, product=body.product, components=components
    )  # fmt: skip
    return answer_response(answer)


@router.get("", response_model=Page[FirmwareList])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The lists of accepted firmware."""
    after, limit = identified_page(query, "firmware lists")
    found = await queries.list_firmware_lists(parts.context.database, after, limit)
    page = page_of(found, query.limit, "firmware lists", lambda one: one.id)
    return json_response({**page, "items": [list_document(one) for one in page["items"]]})


@router.delete("/{list_id}", status_code=204)
@requires(tenant=NO_TENANT, operator=FLEET)
async def remove(list_id: UUID, write: AdminWrite) -> Response:
    """Remove the list of a model: its releases compare with the inspection alone."""
    return answer_response(await delete_firmware_list(write.context, write.operation(), write.actor, list_id))
