"""The record of what operators did."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from orchestrator.http.documents import Actor
from orchestrator.http.numbers import BigCount
from orchestrator.http.paging import PageQuery


class AuditEntry(BaseModel):
    """An audited action with its actor and subject."""

    id: BigCount
    at: datetime
    principal: Actor
    action: str
    subject: str
    detail: dict[str, Any]
    request_id: str | None


class AuditQuery(PageQuery):
    """About which object."""

    subject: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=200)] | None = None
