"""Reads of approvals."""

from __future__ import annotations

from uuid import UUID

from orchestrator.approvals import store
from orchestrator.approvals.states import ApprovalState
from orchestrator.approvals.store import Approval
from orchestrator.database.transactions import Database


async def find_approval(database: Database, approval_id: UUID) -> Approval:
    """One approval. Raises `NotFound`."""
    async with database.reading() as reading:
        return await store.read_approval(reading, approval_id)


async def list_approvals(database: Database, *, state: ApprovalState | None, after: UUID, limit: int) -> list[Approval]:
    """Up to `limit` approvals after this id, of all states if `state` is None."""
    async with database.reading() as reading:
        return await store.list_approvals(reading, state, after, limit)


async def find_overdue_approvals(database: Database, limit: int) -> list[UUID]:
    """Up to `limit` requests past their deadline, the earliest first."""
    async with database.reading() as reading:
        return await store.find_overdue(reading, limit)
