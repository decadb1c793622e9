"""Hardware by serial number: where it is, its history, its repairs (admin zone)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import FIRST_ID, Page, PageQuery, identified_page, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.nodes.commands.repairs import close_repair, open_repair
from orchestrator.nodes.hardware import queries
from orchestrator.nodes.hardware.documents import entry_document, place_document, repair_document
from orchestrator.nodes.hardware.schemas import (
    CloseRepair,
    Hardware,
    HardwareEntry,
    HardwarePlace,
    HardwareQuery,
    OpenRepair,
    Repair,
    RepairQuery,
    SerialPath,
)
from orchestrator.nodes.store.hardware import Filter
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/hardware", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)
repairs_router = APIRouter(prefix="/repairs", tags=["admin: nodes"], responses=PROBLEM_RESPONSES)


@router.get("", response_model=Page[HardwarePlace])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[HardwareQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """GPUs and disks with their nodes, by serial number."""
    wanted = Filter(query.node_id, query.kind, query.contested, query.missing)
    after = place_after(query.cursor, "hardware", _place, ("", FIRST_ID))
    found = await queries.list_hardware(parts.context.database, wanted, after=after, limit=query.limit + 1)
    page = page_of(found, query.limit, "hardware", lambda place: f"{place.serial} {place.node_id}")
    return json_response({**page, "items": [place_document(one) for one in page["items"]]})


@router.get("/{serial}", response_model=Hardware)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(serial: SerialPath, caller: AdminCaller, parts: Parts) -> Response:
    """One GPU or disk: where it is, and its open repair."""
    return json_response(await queries.find_hardware(parts.context.database, serial))


@router.get("/{serial}/history", response_model=Page[HardwareEntry])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_history(
    serial: SerialPath, query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts
) -> Response:
    """What happened to a GPU or disk, at every node that had it, newest first."""
    kind = f"history of {serial}"
    before = place_after(query.cursor, kind, UUID, None)
    found = await queries.list_history(parts.context.database, serial, before=before, limit=query.limit + 1)
    page = page_of(found, query.limit, kind, lambda entry: entry.id)
    return json_response({**page, "items": [entry_document(one) for one in page["items"]]})


@repairs_router.get("", response_model=Page[Repair])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_repairs(query: Annotated[RepairQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Open repairs, oldest first."""
    after, limit = identified_page(query, "repairs")
    found = await queries.list_repairs(
        parts.context.database, serial=query.serial, every=query.every, after=after, limit=limit
    )
    page = page_of(found, query.limit, "repairs", lambda repair: repair.id)
    return json_response({**page, "items": [repair_document(one) for one in page["items"]]})


@repairs_router.post("", response_model=Repair, status_code=201)
@requires(tenant=NO_TENANT, operator=FLEET)
async def open_(body: OpenRepair, write: AdminWrite) -> Response:
    """Open a repair of a GPU or disk. Its slot stays as it is: take it out of service first."""
    answer = await open_repair(
        write.context, write.operation(body), write.actor, serial=body.serial, reason=body.reason
    )
    return answer_response(answer)


@repairs_router.get("/{repair_id}", response_model=Repair)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find_repair(repair_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One repair."""
    return json_response(repair_document(await queries.find_repair(parts.context.database, repair_id)))


@repairs_router.post("/{repair_id}/close", response_model=Repair)
@requires(tenant=NO_TENANT, operator=FLEET)
async def close(repair_id: UUID, body: CloseRepair, write: AdminWrite) -> Response:
    """Close a repair with its result."""
    answer = await close_repair(write.context, write.operation(body), write.actor, repair_id, result=body.result)
    return answer_response(answer)


def _place(text: str) -> tuple[str, UUID]:
    """A place in the list; raises ValueError."""
    serial, node_id = text.split(" ")
    if "\x00" in serial:
        raise ValueError(text)
    serial.encode()
    return serial, UUID(node_id)
