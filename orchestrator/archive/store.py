"""SQL of the archive for the API: where an allocation is that has left its tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading


@dataclass(frozen=True, slots=True)
class ArchivedAllocation:
    """When its rows were deleted, and the segment that contains them. `name` is null of segments of an earlier Berth."""

    archived_at: datetime
    segment: int
    name: str | None
    destination: str


# An allocation of an earlier Berth's archive has no tenant, and is no tenant's.
_READ = """
select s.deleted_at as archived_at, s.sequence as segment, s.name, s.destination
from archived_allocations x join archive_segments s on s.sequence = x.segment
where x.allocation_id = :id and (cast(:tenant_id as uuid) is null or x.tenant_id = :tenant_id)
"""


async def read_archived(reading: Reading, allocation_id: UUID, tenant_id: UUID | None) -> ArchivedAllocation | None:
    """An archived allocation of the tenant, or of any tenant if `tenant_id` is None; None if there is none."""
    row = (await reading.execute(_READ, {"id": allocation_id, "tenant_id": tenant_id})).first()
    return None if row is None else ArchivedAllocation(**row._mapping)
