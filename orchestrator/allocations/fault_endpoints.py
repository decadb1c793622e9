"""Fault reports: sent by tenants, read by operators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.allocations import fault_queries as queries
from orchestrator.allocations.commands.faults import report_fault
from orchestrator.allocations.fault_documents import fault_document
from orchestrator.allocations.fault_schemas import FaultReport, FaultReportQuery, OwnFaultReportQuery, ReportFault
from orchestrator.allocations.store.faults import Fault
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller, Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, identified_page, page_of
from orchestrator.http.services import Parts, Services
from orchestrator.http.tenant_scope import TenantQuery, scoped_tenant
from orchestrator.http.writes import TenantWrite
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, NO_OPERATOR, NO_TENANT, TENANT_READERS, TENANT_WRITERS

router = APIRouter(prefix="/allocations", tags=["allocations"], responses=PROBLEM_RESPONSES)
own_router = APIRouter(prefix="/fault-reports", tags=["allocations"], responses=PROBLEM_RESPONSES)
admin_router = APIRouter(prefix="/fault-reports", tags=["admin: allocations"], responses=PROBLEM_RESPONSES)


@router.post("/{allocation_id}/report-fault", status_code=201, response_model=FaultReport)
@requires(tenant=TENANT_WRITERS, operator=NO_OPERATOR)
async def report(allocation_id: UUID, body: ReportFault, write: TenantWrite) -> Response:
    """Report a fault of an active allocation: at its release its units go into quarantine.

    With `replace`, an allocation of the same kind is placed on other units; once that one is active, this one is released.
    """
    assert write.caller.tenant_id is not None
    offered = await write.parts.catalogue.before_refusing() if body.replace else None
    fault = Fault(body.symptom, body.evidence, body.details)
    answer = await report_fault(
        write.context, write.operation(body), write.actor, write.caller.tenant_id, allocation_id, fault, offered
    )
    return answer_response(answer)


@own_router.get("", response_model=Page[FaultReport])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_own(query: Annotated[OwnFaultReportQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The tenant's open fault reports, oldest first."""
    return await _page(query, parts, scoped_tenant(caller, query.tenant_id))


@own_router.get("/{report_id}", response_model=FaultReport)
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def find_own(report_id: UUID, query: Annotated[TenantQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """One fault report of the tenant."""
    tenant_id = scoped_tenant(caller, query.tenant_id)
    return json_response(fault_document(await queries.find_report(parts.context.database, report_id, tenant_id)))


@admin_router.get("", response_model=Page[FaultReport])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_all(query: Annotated[FaultReportQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """Open fault reports of all tenants, oldest first."""
    return await _page(query, parts, None)


@admin_router.get("/{report_id}", response_model=FaultReport)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find(report_id: UUID, caller: AdminCaller, parts: Parts) -> Response:
    """One fault report, with its evidence."""
    return json_response(fault_document(await queries.find_report(parts.context.database, report_id)))


async def _page(query: FaultReportQuery, parts: Services, tenant_id: UUID | None) -> Response:
    after, limit = identified_page(query, "fault reports")
    database = parts.context.database
    found = await queries.list_reports(database, tenant_id, every=query.every, after=after, limit=limit)
    page = page_of(found, query.limit, "fault reports", lambda report: report.id)
    return json_response({**page, "items": [fault_document(one) for one in page["items"]]})
