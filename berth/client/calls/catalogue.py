"""What is sold: SKUs, regions and images, one function per path (docs/reference/http-api.md)."""

from __future__ import annotations

from berth.client.calls.call import Call, read_page
from berth.client.hardware.images import OfferedImage
from berth.client.models import Page, Region, Sku

API = "/api/v1"


def list_skus(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Sku]]:
    """What is sold, by name."""
    return read_page(f"{API}/skus", Sku, limit=limit, cursor=cursor)


def list_regions(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Region]]:
    """The regions, by name."""
    return read_page(f"{API}/regions", Region, limit=limit, cursor=cursor)


def list_images(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[OfferedImage]]:
    """The images that a create may name, by name."""
    return read_page(f"{API}/images", OfferedImage, limit=limit, cursor=cursor)
