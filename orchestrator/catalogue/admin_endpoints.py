"""What is sold, where, and with which images."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from orchestrator.catalogue import queries as catalogue
from orchestrator.catalogue import store as offers
from orchestrator.catalogue.commands import delete_image, put_image, put_region, put_sku
from orchestrator.catalogue.rules import GuestSize
from orchestrator.catalogue.schemas import Image, PutImage, PutRegion, PutSku, Region, Sku
from orchestrator.http.answers import json_response
from orchestrator.http.authentication import AdminCaller
from orchestrator.http.fields import NAME_PATTERN, REGION_PATTERN
from orchestrator.http.openapi import PROBLEM_RESPONSES, Responses
from orchestrator.http.operation_keys import answer_response
from orchestrator.http.paging import Page, PageQuery, named_page, page_of
from orchestrator.http.services import Parts
from orchestrator.http.writes import AdminWrite
from orchestrator.tenants.required_roles import requires
from orchestrator.tenants.roles import EVERY_OPERATOR, FINANCE, FLEET, NO_TENANT

router = APIRouter(tags=["admin: catalogue"], responses=PROBLEM_RESPONSES)

RegionPath = Annotated[str, Path(pattern=REGION_PATTERN)]
NamePath = Annotated[str, Path(pattern=NAME_PATTERN)]


def _made(model: type[Any]) -> Responses:
    return {201: {"model": model, "description": "It was made"}}


@router.put("/regions/{name}", response_model=Region, responses=_made(Region))
@requires(tenant=NO_TENANT, operator=FLEET)
async def write_region(name: RegionPath, body: PutRegion, write: AdminWrite) -> Response:
    """Make or change a region."""
    region = offers.Region(name, body.display_name)
    answer = await put_region(write.context, write.operation(body), write.actor, region)
    write.parts.catalogue.forget()
    return answer_response(answer)


@router.put("/skus/{name}", response_model=Sku, responses=_made(Sku))
@requires(tenant=NO_TENANT, operator=FINANCE)
async def write_sku(name: NamePath, body: PutSku, write: AdminWrite) -> Response:
    """Make or change what is sold. A changed price holds for what is created from now on; the size of guests never changes."""
    answer = await put_sku(
        write.context,
        write.operation(body),
        write.actor,
        name=name,
        shape=body.shape.value,
        gpu_model=body.gpu_model,
        allowed_counts=body.allowed_counts,
        default_image=body.default_image,
        price_micro_per_gpu_second=body.price_micro_per_gpu_second,
        state=body.state,
        size=GuestSize(body.vcpus_per_gpu, body.memory_bytes_per_gpu),
    )
    write.parts.catalogue.forget()
    return answer_response(answer)


@router.put("/images/{name}", response_model=Image, responses=_made(Image))
@requires(tenant=NO_TENANT, operator=FLEET)
async def write_image(name: NamePath, body: PutImage, write: AdminWrite) -> Response:
    """Make or change an image; nodes check what they fetch against `sha256`."""
    answer = await put_image(
        write.context,
        write.operation(body),
        write.actor,
        name=name,
        url=body.url,
        sha256=body.sha256,
        shapes=[shape.value for shape in body.shapes],
        gpu_models=body.gpu_models,
        regions=body.regions,
        state=body.state,
        statement=None if body.statement is None else body.statement.stated(),
    )
    write.parts.catalogue.forget()
    return answer_response(answer)


@router.get("/images", response_model=Page[Image])
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def list_images(query: Annotated[PageQuery, Query()], caller: AdminCaller, parts: Parts) -> Response:
    """The images, by name; retired ones too."""
    after, limit = named_page(query, "all images")
    found = await catalogue.list_images(parts.context.database, after=after, limit=limit)
    return json_response(page_of(found, query.limit, "all images", lambda image: image.name))


@router.get("/images/{name}", response_model=Image)
@requires(tenant=NO_TENANT, operator=EVERY_OPERATOR)
async def find_image(name: NamePath, caller: AdminCaller, parts: Parts) -> Response:
    """One image, also a retired one."""
    return json_response(await catalogue.find_image(parts.context.database, name))


@router.delete("/images/{name}", status_code=204)
@requires(tenant=NO_TENANT, operator=FLEET)
async def remove_image(name: NamePath, write: AdminWrite) -> Response:
    """Delete an image that nothing needs; otherwise 409 `image_in_use` with the counts."""
    answer = await delete_image(write.context, write.operation(), write.actor, name)
    write.parts.catalogue.forget()
    return answer_response(answer)
