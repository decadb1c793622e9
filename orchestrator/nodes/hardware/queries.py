"""Reads hardware by serial number, outside commands."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Database
from orchestrator.nodes.hardware.documents import hardware_document
from orchestrator.nodes.store import hardware, nodes
from orchestrator.nodes.store.hardware import Entry, Filter, Place, Repair
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound

PLACES_MAX = 100
"""Places of one serial number that are shown; more nodes than these report it only if they lie."""


async def list_hardware(database: Database, wanted: Filter, *, after: tuple[str, UUID], limit: int) -> list[Place]:
    """Up to `limit` places behind this one, by serial number and node. Raises `NotFound` for an unknown node."""
    async with database.reading() as reading:
        if wanted.node_id is not None:
            await nodes.read_node(reading, wanted.node_id)
        return await hardware.list_places(reading, wanted, after=after, limit=limit)


async def find_hardware(database: Database, serial: str) -> JsonObject:
    """The piece with this serial number: its places and its open repair. Raises `NotFound`."""
    async with database.reading() as reading:
        kind = await hardware.find_kind(reading, serial)
        if kind is None:
            raise NotFound(f"no hardware with the serial number {serial} is known")
        places = await hardware.read_places(reading, serial, PLACES_MAX)
        repair = await hardware.read_open_repair(reading, serial)
    return hardware_document(serial, kind, places, repair)


async def list_history(database: Database, serial: str, *, before: UUID | None, limit: int) -> list[Entry]:
    """Up to `limit` entries before this one, the newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        if await hardware.find_kind(reading, serial) is None:
            raise NotFound(f"no hardware with the serial number {serial} is known")
        return await hardware.list_history(reading, serial, before=before, limit=limit)


async def list_repairs(database: Database, *, serial: str | None, every: bool, after: UUID, limit: int) -> list[Repair]:
    """Up to `limit` repairs behind this id, the oldest first; with `every`, also closed ones."""
    async with database.reading() as reading:
        return await hardware.list_repairs(reading, serial=serial, every=every, after=after, limit=limit)


async def find_repair(database: Database, repair_id: UUID) -> Repair:
    """One repair. Raises `NotFound`."""
    async with database.reading() as reading:
        found = await hardware.read_repair(reading, repair_id)
    if found is None:
        raise NotFound(f"there is no repair {repair_id}")
    return found


async def count_hardware(context: Context) -> dict[str, int]:
    """How many places are `contested` or `missing`, and how many repairs are open (`in_repair`)."""
    async with context.database.reading() as reading:
        return await hardware.count_hardware(reading)
