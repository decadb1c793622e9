"""What can be rented, where, and how much of it is free."""

from __future__ import annotations

from orchestrator.catalogue import store as offers
from orchestrator.catalogue.store import Image, Region, Sku
from orchestrator.database.transactions import Database
from orchestrator.placement.store import availability
from orchestrator.placement.store.availability import Availability


async def list_skus(database: Database, *, after: str, limit: int) -> list[Sku]:
    """Up to `limit` SKUs after this name."""
    async with database.reading() as reading:
        return await offers.list_skus(reading, after, limit)


async def list_regions(database: Database, *, after: str, limit: int) -> list[Region]:
    """Up to `limit` regions after this name."""
    async with database.reading() as reading:
        return await offers.list_regions(reading, after, limit)


async def list_images(database: Database, *, after: str, limit: int) -> list[Image]:
    """Up to `limit` images after this name."""
    async with database.reading() as reading:
        return await offers.list_images(reading, after, limit)


async def list_availability(
    database: Database, *, sku: str | None, region: str | None, after: tuple[str, str], limit: int
) -> list[Availability]:
    """Up to `limit` offers after this SKU and region, with what is free of each now."""
    async with database.reading() as reading:
        return await availability.read_availability(reading, sku=sku, region=region, after=after, limit=limit)
