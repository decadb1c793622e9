"""Reads of reservations and resources: for tenants and operators, and for the sweepers."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.calls import CallGroup
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.reservations.refusals import ResourceNotFound
from orchestrator.reservations.resource_names import parse_resource
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store import overdue, owners, resources, starting
from orchestrator.reservations.store import rows as reservation_rows
from orchestrator.reservations.store.resources import Resource, ResourceKind


async def find_tenants_of_reservations(database: Database, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """The tenant of each of these reservations that there are, over connections that nothing else uses."""
    async with database.read_call(CallGroup.OWNERS) as call:
        return await owners.find_tenants(call, ids)


async def find_reservation(database: Database, reservation_id: UUID, tenant_id: UUID, shard: int) -> JsonObject:
    """One reservation. Raises `ReservationNotFound`, `ReservationRetired`."""
    async with database.reading() as reading:
        found = await reservation_rows.read_reservation(reading, reservation_id, tenant_id)
        if found is None:
            raise await reservation_rows.why_missing(reading, reservation_id, shard)
    return found


async def why_missing(context: Context, reservation_id: UUID) -> Problem:
    """The refusal for an id that names no reservation of the tenant."""
    async with context.database.read_one() as reading:
        return await reservation_rows.why_missing(reading, reservation_id, context.limits.shard)


async def list_reservations(
    database: Database, tenant_id: UUID, *, state: ReservationState | None, after: int, limit: int
) -> list[tuple[int, JsonObject]]:
    """Up to `limit` reservations after this position, oldest first, each with its position."""
    return await read_replicated(
        database,
        lambda reading: reservation_rows.list_reservations(reading, tenant_id, state=state, after=after, limit=limit),
        snapshot=False,
    )


async def find_resource(database: Database, name: str, tenant_id: UUID | None) -> Resource:
    """One resource, with the tenant's own reservation of it. Raises `ResourceNotFound`."""
    async with database.read_one() as reading:
        found = await resources.read_resource(reading, parse_resource(name), tenant_id)
    if found is None:
        raise ResourceNotFound.named([name])
    return found


async def list_resources(
    database: Database, tenant_id: UUID | None, *, kind: ResourceKind | None, after: int, limit: int
) -> list[Resource]:
    """Up to `limit` resources after this position, by unit number."""
    return await read_replicated(
        database,
        lambda reading: resources.list_resources(reading, tenant_id, kind=kind, after=after, limit=limit),
        snapshot=False,
    )


async def find_due_starts(context: Context, limit: int) -> list[UUID]:
    """At most `limit` confirmed reservations whose template is due to start, the earliest first."""
    async with context.database.reading() as reading:
        return await starting.find_due_starts(reading, limit)


async def find_late_starts(context: Context, after: int, limit: int) -> list[tuple[UUID, int]]:
    """At most `limit` reservations whose start waits for a node, after this position, each with its position."""
    async with context.database.reading() as reading:
        return await starting.find_late_starts(reading, after, limit)


async def find_stranded(context: Context, after: int, limit: int) -> list[tuple[UUID, int]]:
    """At most `limit` begun reservations of a SKU on nodes out of service, after this position, each with its position."""
    async with context.database.reading() as reading:
        return await starting.find_stranded(reading, after, limit)


async def find_nodes_to_start(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with allocations that wait for units that are free now."""
    async with context.database.reading() as reading:
        return await starting.find_nodes_to_start(reading, limit)


async def find_overdue_holds(context: Context, limit: int) -> list[UUID]:
    """At most `limit` holds past their deadline, the earliest first."""
    async with context.database.reading() as reading:
        return await overdue.find_overdue_holds(reading, limit)


async def find_windows_over(context: Context, limit: int) -> list[UUID]:
    """At most `limit` confirmed windows that have passed, the earliest first."""
    async with context.database.reading() as reading:
        return await overdue.find_windows_over(reading, limit)
