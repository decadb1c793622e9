"""What can be rented: SKUs, regions, images, and how much is free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.catalogue import queries as catalogue
from orchestrator.catalogue import schemas
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, PageQuery, bounded_text, named_page, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.placement.queries import AskedAvailability, find_availability
from orchestrator.placement.store.availability import Availability

router = APIRouter(tags=["catalogue"], responses=PROBLEM_RESPONSES)


@router.get("/skus", response_model=Page[schemas.Sku])
async def list_skus(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """What is sold, by name; retired SKUs too."""
    after, limit = named_page(query, "skus")
    found = await catalogue.list_skus(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "skus", lambda sku: sku.name))


@router.get("/regions", response_model=Page[schemas.Region])
async def list_regions(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The regions, by name."""
    after, limit = named_page(query, "regions")
    found = await catalogue.list_regions(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "regions", lambda region: region.name))


@router.get("/images", response_model=Page[schemas.Image])
async def list_images(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The images, by name; retired ones too."""
    after, limit = named_page(query, "images")
    found = await catalogue.list_images(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "images", lambda image: image.name))


@router.get("/availability", response_model=Page[schemas.WindowAvailability | schemas.Availability])
async def list_availability(
    query: Annotated[schemas.AvailabilityQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """What could be placed now, by SKU and region; or in a window, and from when on a request fits."""
    database, limit = parts.context.database, query.limit + 1
    after = place_after(query.cursor, "availability", _offer, ("", ""))
    found: Sequence[Availability]
    if query.of_a_window:
        asked = AskedAvailability(query.sku, query.region, query.gpus, query.count or 1, query.starts_at, query.ends_at)
        longest = parts.context.limits.window_seconds_max
        found = await find_availability(
            database, parts.catalogue, asked, window_seconds_max=longest, after=after, limit=limit
        )
    else:
        found = await catalogue.list_availability(
            database, sku=query.sku, region=query.region, after=after, limit=limit
        )
    return json_response(page_of(found, query.limit, "availability", lambda offer: _place(offer.sku, offer.region)))


def _place(sku: str, region: str) -> str:
    return orjson.dumps([sku, region]).decode()


def _offer(place: str) -> tuple[str, str]:
    sku, region = orjson.loads(place)
    if not isinstance(sku, str) or not isinstance(region, str):
        raise ValueError(place)
    return bounded_text(sku), bounded_text(region)
