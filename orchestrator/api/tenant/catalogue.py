"""What can be rented: SKUs, regions, images, and how much is free."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.api.answers import json_response
from orchestrator.api.authentication import Caller
from orchestrator.api.documents import PROBLEM_RESPONSES
from orchestrator.api.paging import Page, PageQuery, bounded_text, named_page, page_of, place_after
from orchestrator.api.schemas import catalogue as schemas
from orchestrator.api.services import Parts
from orchestrator.queries import catalogue

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


@router.get("/availability", response_model=Page[schemas.Availability])
async def list_availability(
    query: Annotated[schemas.AvailabilityQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """What could be placed now, by SKU and region."""
    found = await catalogue.list_availability(
        parts.context.database,
        sku=query.sku,
        region=query.region,
        after=place_after(query.cursor, "availability", _offer, ("", "")),
        limit=query.limit + 1,
    )
    return json_response(page_of(found, query.limit, "availability", lambda offer: _place(offer.sku, offer.region)))


def _place(sku: str, region: str) -> str:
    return orjson.dumps([sku, region]).decode()


def _offer(place: str) -> tuple[str, str]:
    sku, region = orjson.loads(place)
    if not isinstance(sku, str) or not isinstance(region, str):
        raise ValueError(place)
    return bounded_text(sku), bounded_text(region)
