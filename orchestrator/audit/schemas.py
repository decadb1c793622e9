"""The audit as clients see it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, Field

from berth.process.json_objects import JsonObject
from orchestrator.audit.list_store import Filter
from orchestrator.http.documents import Actor
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import QUERY_INT64_MAX, BigCount

_Name = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200)]


class AuditPrincipal(Actor):
    """What acted: kind, id and, of a caller of the API, role."""

    role: str | None


class AuditEntry(BaseModel):
    """An audited action: the caller, the object and the outcome."""

    sequence: BigCount
    id: BigCount
    at: datetime
    recorded_at: datetime
    principal: AuditPrincipal
    tenant_id: UUID | None
    source: str | None
    user_agent: str | None
    action: str
    subject: str
    status: Annotated[int, Field(ge=100, le=599)] | None
    code: str
    operation_key: str | None
    request_id: str | None
    correlation_id: UUID | None
    detail: JsonObject
    hash: str


class OwnAuditQuery(PageQuery):
    """About which object, by which principal, which action with which outcome, when it was recorded, and after which sequence."""

    subject: _Name | None = None
    principal: _Name | None = None
    action: _Name | None = None
    outcome: _Name | None = None
    since: Moment | None = None
    until: Moment | None = None
    after: Annotated[int, Field(ge=0, le=QUERY_INT64_MAX, json_schema_extra={"format": "int64"})] | None = None

    def filter(self, tenant_id: UUID | None) -> Filter:
        """The rows that the query asks for, of one tenant or all."""
        return Filter(self.subject, self.principal, tenant_id, self.action, self.outcome, self.since, self.until)


class AuditQuery(OwnAuditQuery):
    """The same, of one tenant's principals or all."""

    tenant_id: UUID | None = None
