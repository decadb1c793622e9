"""The tenants of allocations, for requests that need the reserve of connections."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.database.calls import FunctionCall

_FIND = """
select coalesce(jsonb_object_agg(id, tenant_id), '{}'::jsonb) from allocations where id = any(%(ids)s::uuid[])
"""


async def find_tenants(call: FunctionCall, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The tenant of each of these allocations that there are."""
    found = await call.value(_FIND, {"ids": list(ids)})
    return {UUID(allocation): UUID(tenant) for allocation, tenant in found.items()}
