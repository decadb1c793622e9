"""Looks up whether the caller owns what its request ends, once the reserve of connections is needed (P13).

Without it a tenant that names random ids would take what is kept for the owners of real ones. The first thing that such a request
costs is a lookup, so lookups have connections for nothing else, and those that arrive while one runs share the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

from berth.process.combined_calls import CombinedCalls
from orchestrator.database.reserve import Claimant
from orchestrator.database.transactions import Database
from orchestrator.http.metrics import RESERVE_CLAIMS
from orchestrator.tenants.principals import Principal

IDS_MAX = 1_000
"""Most objects of one lookup."""
_PREFIX = ["", "api", "v1"]

FindTenants = Callable[[Database, Sequence[UUID]], Awaitable[dict[UUID, UUID]]]
"""The tenants of the objects with these ids that there are."""


class ObjectOwners:
    """Whether callers own what their requests name. `finders`: by collection, as allocations of /allocations/{id}/release."""

    def __init__(self, database: Database, finders: Mapping[str, FindTenants]) -> None:
        self._lookups = {
            collection: CombinedCalls[UUID, UUID | None](
                partial(_tenants_of, database.for_platform(), find), items_max=IDS_MAX
            )
            for collection, find in finders.items()
        }

    async def claimant(self, caller: Principal | None, path: str) -> Claimant | None:
        """The caller's principal if it owns what the path names; operators own everything, callers that are not known nothing.

        Raises what the lookup raises.
        """
        if caller is None:
            return None
        if caller.tenant_id is None:
            RESERVE_CLAIMS.labels("operator").inc()
            return Claimant(caller.scope)
        owns = await self._tenant_of(path) == caller.tenant_id
        RESERVE_CLAIMS.labels("owner" if owns else "not_owned").inc()
        return Claimant(caller.scope) if owns else None

    async def _tenant_of(self, path: str) -> UUID | None:
        parts = path.split("/")
        lookups = self._lookups.get(parts[3]) if len(parts) > 4 and parts[:3] == _PREFIX else None
        if lookups is None:
            return None
        try:
            named = UUID(parts[4])
        except ValueError:
            return None
        return await lookups.outcome(named)


async def _tenants_of(database: Database, find: FindTenants, ids: Sequence[UUID]) -> list[UUID | None]:
    found = await find(database, list(set(ids)))
    return [found.get(each) for each in ids]
