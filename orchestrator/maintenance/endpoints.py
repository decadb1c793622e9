"""Maintenance windows: plan, commit, list, show, cancel and end (admin zone)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import Nothing
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.maintenance import queries
from orchestrator.maintenance.changes import window_document
from orchestrator.maintenance.commands.windows import (
    Bounds,
    Wanted,
    cancel_maintenance,
    commit_maintenance,
    end_maintenance,
)
from orchestrator.maintenance.rules import Policies
from orchestrator.maintenance.schemas import (
    CommitMaintenance,
    MaintenancePlan,
    MaintenanceQuery,
    MaintenanceWindow,
    PlanQuery,
)
from orchestrator.maintenance.states import Resolution, WindowState
from orchestrator.reservations.resource_names import parse_resources
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FLEET, NO_TENANT

router = APIRouter(prefix="/maintenance", tags=["admin: maintenance"], responses=PROBLEM_RESPONSES)
_LEAST = Policies(Resolution.NOTIFY, Resolution.MOVE)


@router.get("/plan", response_model=MaintenancePlan)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def plan(query: Annotated[PlanQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """List the claims in the way of a window; changes nothing."""
    named = parse_resources(query.resources)
    found = await queries.plan_window(parts.context.database, named, query.starts_at, query.ends_at)
    return json_response({"conflicts": [conflict.document(_LEAST) for conflict in found]})


@router.post("", response_model=MaintenanceWindow, status_code=201)
@requires(tenant=NO_TENANT, operator=FLEET)
async def commit(body: CommitMaintenance, write: AdminWrite) -> Response:
    """Commit a window: it claims its units, and notifies the tenants of allocations in its way or is refused."""
    policies = Policies(Resolution(body.allocations), Resolution(body.reservations))
    wanted = Wanted(parse_resources(body.resources), body.starts_at, body.ends_at, body.reason, policies)
    if body.task is not None:
        wanted = replace(wanted, task=body.task.wanted())
    bounds = Bounds(write.parts.settings.maintenance_windows_max, write.parts.catalogue)
    answer = await commit_maintenance(write.context, write.operation(body), write.caller.actor, wanted, bounds)
    return answer_response(answer)


@router.get("", response_model=Page[MaintenanceWindow])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[MaintenanceQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Windows in the order of their commits, ended ones too."""
    after, limit = identified_page(query, "maintenance")
    state = None if query.state is None else WindowState(query.state)
    found = await queries.list_windows(parts.context.database, state=state, after=after, limit=limit)
    page = page_of(found, query.limit, "maintenance", lambda window: window.id)
    return json_response({**page, "items": [window_document(window) for window in page["items"]]})


@router.get("/{window_id}", response_model=MaintenanceWindow)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(window_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One window, and which of its units are still planned."""
    return json_response(window_document(await queries.find_window(parts.context.database, window_id)))


@router.post("/{window_id}/cancel", response_model=MaintenanceWindow)
@requires(tenant=NO_TENANT, operator=FLEET)
async def cancel(window_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """Cancel a scheduled window; its units are free again."""
    return answer_response(await cancel_maintenance(write.context, write.operation(), write.caller.actor, window_id))


@router.post("/{window_id}/end", response_model=MaintenanceWindow)
@requires(tenant=NO_TENANT, operator=FLEET)
async def end(window_id: UUID, write: AdminWrite, body: Nothing | None = None) -> Response:
    """End an active window before its time; its units are free again."""
    return answer_response(await end_maintenance(write.context, write.operation(), write.caller.actor, window_id))
