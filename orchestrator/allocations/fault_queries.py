"""Reads of fault reports: for tenants, for operators, and for the sweeper."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations.store import faults
from orchestrator.allocations.store.faults import FaultReport
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound


async def list_reports(
    database: Database, tenant_id: UUID | None, *, every: bool, after: UUID, limit: int
) -> list[FaultReport]:
    """Up to `limit` reports of the tenant, or for None of all, behind this id, the oldest first; with `every`, also closed."""
    return await read_replicated(
        database, lambda reading: faults.list_reports(reading, tenant_id, every=every, after=after, limit=limit)
    )


async def find_report(database: Database, report_id: UUID, tenant_id: UUID | None = None) -> FaultReport:
    """One report, of this tenant if one is named. Raises `NotFound`."""
    async with database.reading() as reading:
        found = await faults.read_report(reading, report_id)
    if found is None or tenant_id not in (None, found.tenant_id):
        raise NotFound(f"there is no fault report {report_id}")
    return found


async def find_ended_replacements(context: Context, limit: int) -> list[UUID]:
    """At most `limit` reports whose replacement can be concluded, the earliest deadline first."""
    async with context.database.reading() as reading:
        return await faults.find_ended_replacements(reading, limit)
