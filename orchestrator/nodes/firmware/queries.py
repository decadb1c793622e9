"""Firmware lists, for operators."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.nodes.firmware import store as firmware_lists
from orchestrator.nodes.firmware.store import FirmwareList


async def list_firmware_lists(database: Database, after: UUID, limit: int) -> list[FirmwareList]:
    """Up to `limit` lists after this id."""
    async with database.reading() as reading:
        return await firmware_lists.list_lists(reading, after, limit)
