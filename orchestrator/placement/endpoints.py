"""HTTP of availability (tenant zone)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import Response

from orchestrator.http.answers import json_response
from orchestrator.http.authentication import Caller
from orchestrator.http.openapi import PROBLEM_RESPONSES
from orchestrator.http.paging import Page, bounded_text, page_of, place_after
from orchestrator.http.services import Parts
from orchestrator.placement import queries, schemas
from orchestrator.placement.queries import AskedAvailability
from orchestrator.placement.store.availability import Availability
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, TENANT_READERS

router = APIRouter(tags=["catalogue"], responses=PROBLEM_RESPONSES)


@router.get("/availability", response_model=Page[schemas.WindowAvailability | schemas.Availability])
@requires(tenant=TENANT_READERS, operator=EVERY_OPERATOR)
async def list_availability(
    query: Annotated[schemas.AvailabilityQuery, Query()], caller: Caller, parts: Parts
) -> Response:
    """Free GPUs now, by SKU and region; or in a window, with the earliest time at which a request fits."""
    database, limit = parts.context.database, query.limit + 1
    after = place_after(query.cursor, "availability", _offer, ("", ""))
    found: Sequence[Availability]
    if query.of_a_window:
        asked = AskedAvailability(query.sku, query.region, query.gpus, query.count or 1, query.starts_at, query.ends_at)
        longest = parts.context.limits.window_seconds_max
        found = await queries.find_availability(
            database, parts.catalogue, asked, window_seconds_max=longest, after=after, limit=limit
        )
    else:
        found = await queries.list_availability(database, sku=query.sku, region=query.region, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "availability", lambda offer: _place(offer.sku, offer.region)))


def _place(sku: str, region: str) -> str:
    return orjson.dumps([sku, region]).decode()


def _offer(place: str) -> tuple[str, str]:
    sku, region = orjson.loads(place)
    if not isinstance(sku, str) or not isinstance(region, str):
        raise ValueError(place)
    return bounded_text(sku), bounded_text(region)
