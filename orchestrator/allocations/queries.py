"""Reads of allocations: for tenants and operators, and for the sweepers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.allocations.device_documents import devices_document
from orchestrator.allocations.states import FINAL_STATES, AllocationState
from orchestrator.allocations.store import due, health, owners
from orchestrator.allocations.store import rows as allocation_rows
from orchestrator.allocations.store.devices import read_devices
from orchestrator.allocations.store.due import Overdue, Waiter
from orchestrator.allocations.store.missing import missing_allocation
from orchestrator.allocations.store.rows import allocation_body, timeline_entry
from orchestrator.database.calls import CallGroup
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database, Reading
from orchestrator.operations.execution import Context
from orchestrator.wipes.refusals import WipeCertificateMissing
from orchestrator.wipes.store import read_certificate_document


@dataclass(frozen=True, slots=True)
class ListItem:
    """An item of a list, and its position for the cursor."""

    place: UUID | int
    document: JsonObject


async def find_tenants_of_allocations(database: Database, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The tenant of each of these allocations that there are, over connections that nothing else uses."""
    async with database.read_call(CallGroup.OWNERS) as call:
        return await owners.find_tenants(call, ids)


async def find_allocation(
    database: Database, allocation_id: UUID, tenant_id: UUID | None, *, for_operator: bool = False
) -> JsonObject:
    """One allocation of the tenant, or of any tenant if None. Raises `NotFound`, `Archived`."""
    async with database.read_one() as reading:
        row = await allocation_rows.read_allocation(reading, allocation_id, tenant_id)
    if row is None:
        async with database.read_one() as reading:
            raise await missing_allocation(reading, allocation_id, tenant_id, for_operator=for_operator)
    return allocation_body(row)


async def list_allocations(
    database: Database,
    tenant_id: UUID | None,
    *,
    state: AllocationState | None,
    label: tuple[str, str] | None,
    after: UUID,
    limit: int,
) -> Sequence[ListItem]:
    """Up to `limit` allocations after this id, oldest first; of all tenants if `tenant_id` is None."""
    rows = await read_replicated(
        database,
        lambda reading: allocation_rows.list_allocations(
            reading, tenant_id, state=state, label=label, after=after, limit=limit
        ),
        snapshot=False,
    )
    return [ListItem(row.id, allocation_body(row)) for row in rows]


async def list_timeline(
    database: Database,
    allocation_id: UUID,
    tenant_id: UUID | None,
    *,
    after: int,
    limit: int,
    for_operator: bool = False,
) -> Sequence[ListItem]:
    """Up to `limit` timeline entries after this id, oldest first. Raises `NotFound`, `Archived`."""

    async def read(reading: Reading) -> list[ListItem]:
        if await allocation_rows.read_allocation(reading, allocation_id, tenant_id) is None:
            raise await missing_allocation(reading, allocation_id, tenant_id, for_operator=for_operator)
        rows = await allocation_rows.read_timeline(reading, allocation_id, after=after, limit=limit)
        return [ListItem(row.id, timeline_entry(row)) for row in rows]

    return await read_replicated(database, read)


async def find_wipe_certificate(
    database: Database, allocation_id: UUID, tenant_id: UUID | None, *, for_operator: bool = False
) -> JsonObject:
    """The wipe certificate of an allocation. Raises `NotFound`, `Archived`, `WipeCertificateMissing`."""
    async with database.reading() as reading:
        row = await allocation_rows.read_allocation(reading, allocation_id, tenant_id)
        if row is None:
            raise await missing_allocation(reading, allocation_id, tenant_id, for_operator=for_operator)
        found = await read_certificate_document(reading, allocation_id)
    if found is None:
        raise WipeCertificateMissing.of(allocation_id, row.state, is_final=row.state in FINAL_STATES)
    return found


async def find_devices(database: Database, allocation_id: UUID) -> JsonObject:
    """The virtual devices of an allocation's guest, for operators. Raises `NotFound`, `Archived`."""
    async with database.reading() as reading:
        row = await allocation_rows.read_allocation(reading, allocation_id, None)
        if row is None:
            raise await missing_allocation(reading, allocation_id, None, for_operator=True)
        return devices_document(allocation_id, row.state, await read_devices(reading, allocation_id))


async def find_overdue_allocations(context: Context, grace_seconds: float, limit: int) -> list[Overdue]:
    """At most `limit` allocations whose wait ended more than `grace_seconds` ago, the earliest first."""
    async with context.database.reading() as reading:
        return await due.find_overdue(reading, grace_seconds, limit)


async def find_waiters(
    context: Context, *, consumer: str, patience_seconds: float, after: tuple[datetime, UUID], limit: int
) -> list[Waiter]:
    """At most `limit` waits older than `patience_seconds`, in the order of their deadlines, from `after` on."""
    async with context.database.reading() as reading:
        return await due.find_waiters(
            reading, consumer=consumer, patience_seconds=patience_seconds, after=after, limit=limit
        )


async def find_ended(context: Context, limit: int) -> list[UUID]:
    """At most `limit` allocations past their `ends_at`, the earliest first."""
    async with context.database.reading() as reading:
        return await due.find_ended(reading, limit)


async def find_ending(context: Context, limit: int) -> list[UUID]:
    """At most `limit` allocations that end within the notice and without a notification yet, the earliest first."""
    async with context.database.reading() as reading:
        return await due.find_ending(reading, context.limits.ending_notice_seconds, limit)


async def find_past_health_deadline(context: Context, limit: int) -> list[UUID]:
    """At most `limit` unhealthy allocations whose deadline has passed, the earliest first."""
    async with context.database.reading() as reading:
        return await health.find_past_deadline(reading, limit)


async def find_unnoticed_nodes(context: Context, limit: int) -> list[UUID]:
    """At most `limit` offline nodes with allocations that count as healthy."""
    async with context.database.reading() as reading:
        return await health.find_unnoticed_nodes(reading, limit)
