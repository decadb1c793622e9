"""What keeps the log from being truncated."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.store import retention, truncation
from orchestrator.store.database import Database
from orchestrator.store.retention import Policy
from orchestrator.store.truncation import LogCursor, LogStanding


async def find_policy(database: Database, scope: UUID, policy_id: str) -> Policy:
    """One policy. Raises `NotFound`."""
    async with database.glance() as reading:
        return await retention.read_policy(reading, scope, policy_id)


async def list_policies(database: Database, scope: UUID) -> Sequence[Policy]:
    """Those of a tenant, or of the operators, by id."""
    async with database.glance() as reading:
        return await retention.list_policies(reading, scope)


async def find_cursors(database: Database, limit: int) -> tuple[LogStanding, list[LogCursor]]:
    """Where the log stands, and up to `limit` of those who need it, who needs the oldest version first."""
    async with database.reading() as reading:
        return await truncation.read_standing(reading), await truncation.read_cursors(reading, limit)
