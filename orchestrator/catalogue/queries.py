"""Reads of SKUs, regions and images."""

from __future__ import annotations

from orchestrator.catalogue import image_store as images
from orchestrator.catalogue import store as offers
from orchestrator.catalogue.image_store import OfferedImage
from orchestrator.catalogue.store import Image, Region, Sku
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database


async def list_skus(database: Database, *, after: str, limit: int) -> list[Sku]:
    """Up to `limit` SKUs after this name."""
    return await read_replicated(database, lambda reading: offers.list_skus(reading, after, limit))


async def list_regions(database: Database, *, after: str, limit: int) -> list[Region]:
    """Up to `limit` regions after this name."""
    return await read_replicated(database, lambda reading: offers.list_regions(reading, after, limit))


async def list_offered_images(database: Database, *, after: str, limit: int) -> list[OfferedImage]:
    """Up to `limit` images after this name that a create may name."""
    return await read_replicated(database, lambda reading: images.list_offered_images(reading, after, limit))


async def list_images(database: Database, *, after: str, limit: int) -> list[Image]:
    """Up to `limit` images after this name, retired ones too."""
    return await read_replicated(database, lambda reading: images.list_images(reading, after, limit))


async def find_image(database: Database, name: str) -> Image:
    """One image, also a retired one. Raises `NotFound`."""
    async with database.reading() as reading:
        return await images.read_image(reading, name)
