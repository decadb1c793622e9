"""The refusal for an allocation that has no row."""

from __future__ import annotations

from uuid import UUID

from orchestrator.archive.refusals import Archived
from orchestrator.archive.store import read_archived
from orchestrator.database.transactions import Reading
from orchestrator.problems import NotFound, Problem
from orchestrator.times import rfc3339


async def missing_allocation(
    reading: Reading, allocation_id: UUID, tenant_id: UUID | None, *, for_operator: bool = False
) -> Problem:
    """`Archived` if it is the tenant's (None: any tenant's) and in the archive; otherwise `NotFound`, as if it never existed."""
    found = await read_archived(reading, allocation_id, tenant_id)
    if found is None:
        return NotFound(f"there is no allocation {allocation_id}")
    place = {"segment": found.name or found.segment, "destination": found.destination} if for_operator else {}
    return Archived(
        f"allocation {allocation_id} ended and was archived; ask the operator for its record",
        archived_at=rfc3339(found.archived_at),
        **place,
    )
