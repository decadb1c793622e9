"""HTTP of the catalogue: SKUs, regions and images (tenant zone)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.catalogue import queries as catalogue
from orchestrator.catalogue import schemas
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, PageQuery, named_page, page_of
from orchestrator.http.services import Parts
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, TENANT_READERS

router = APIRouter(tags=["catalogue"], responses=PROBLEM_RESPONSES)


@router.get("/skus", response_model=Page[schemas.Sku])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_skus(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """What is sold, by name; retired SKUs too."""
    after, limit = named_page(query, "skus")
    found = await catalogue.list_skus(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "skus", lambda sku: sku.name))


@router.get("/regions", response_model=Page[schemas.Region])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_regions(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The regions, by name."""
    after, limit = named_page(query, "regions")
    found = await catalogue.list_regions(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "regions", lambda region: region.name))


@router.get("/images", response_model=Page[schemas.OfferedImage])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_images(query: Annotated[PageQuery, Query()], caller: Caller, parts: Parts) -> Response:
    """The images that a create may name, by name."""
    after, limit = named_page(query, "images")
    found = await catalogue.list_offered_images(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "images", lambda image: image.name))
