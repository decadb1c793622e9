"""Orphans: what a node holds although nothing here says that it should."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel

from orchestrator.http.documents import Failure, Waits
from orchestrator.http.fields import Id, Request, Sentence
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.nodes.orphan_states import OrphanState


class Orphan(BaseModel):
    """What it is called on the node, which slots it keeps out of service, and what was decided."""

    id: UUID
    node_id: UUID
    allocation_id: UUID
    slots: list[Count]
    fence: BigCount | None
    state: OrphanState
    first_seen_at: datetime
    last_seen_at: datetime
    decided_by: str | None
    decided_at: datetime | None
    reason: str | None
    adopted_for: UUID | None
    attempts: Count
    failure: Failure | None
    destroyed_at: datetime | None
    waits: Waits | None
    row_version: BigCount


class OrphanQuery(PageQuery):
    """Which ones; with `every`, also those that are destroyed."""

    every: bool = False


class AdoptOrphan(Request):
    """Why it is to be left where it is, and for which allocation of the node, if any."""

    reason: Sentence
    allocation_id: Id | None = None


class DestroyOrphan(Request):
    """Why, on the record."""

    reason: Sentence
