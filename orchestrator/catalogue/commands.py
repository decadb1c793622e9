"""Make or change a region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from orchestrator.audit import store as audit
from orchestrator.catalogue import image_store as images
from orchestrator.catalogue import store as offers
from orchestrator.catalogue.image_statement import ImageStatement
from orchestrator.catalogue.rules import GuestSize
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor


async def put_region(context: Context, operation: Operation, actor: Actor, region: offers.Region) -> Answer:
    """200 with the region, or 201 when it was made."""

    async def effect(tx: Transaction) -> Done:
        written, made = await offers.put_region(tx, region)
        await audit.record(tx, actor, "region.put", f"regions/{region.name}", asdict(written), operation.request_id)
        return Done(201 if made else 200, asdict(written))

    return await run_once(context, operation, effect, None)


async def put_sku(
    context: Context,
    operation: Operation,
    actor: Actor,
    *,
    name: str,
    shape: str,
    gpu_model: str,
    allowed_counts: Sequence[int],
    default_image: str | None,
    price_micro_per_gpu_second: int | None,
    state: str | None,
    size: GuestSize,
) -> Answer:
    """200 with the SKU, or 201 when it was made. What runs keeps the price version it was created with.

    Refusals: `ImageUnavailable`; `GuestSizeFixed` if the SKU has another size; `GuestSizeMisfit` and `GuestSizeUnsupported` if a
    node that would serve it cannot give it.
    """

    async def effect(tx: Transaction) -> Done:
        written, made = await offers.put_sku(
            tx,
            name=name,
            shape=shape,
            gpu_model=gpu_model,
            allowed_counts=allowed_counts,
            default_image=default_image,
            price_micro_per_gpu_second=price_micro_per_gpu_second,
            state=state,
            size=size,
        )
        await audit.record(tx, actor, "sku.put", f"skus/{name}", asdict(written), operation.request_id)
        return Done(201 if made else 200, asdict(written))

    return await run_once(context, operation, effect, None)


async def put_image(
    context: Context,
    operation: Operation,
    actor: Actor,
    *,
    name: str,
    url: str,
    sha256: str,
    shapes: Sequence[str],
    gpu_models: Sequence[str] | None,
    regions: Sequence[str] | None,
    state: str | None,
    statement: ImageStatement | None,
) -> Answer:
    """200 with the image, or 201 when it was made."""

    async def effect(tx: Transaction) -> Done:
        written, made = await offers.put_image(
            tx, name=name, url=url, sha256=sha256, shapes=shapes, gpu_models=gpu_models, regions=regions, state=state,
            statement=statement,
        )  # fmt: skip
        await audit.record(tx, actor, "image.put", f"images/{name}", asdict(written), operation.request_id)
        return Done(201 if made else 200, asdict(written))

    return await run_once(context, operation, effect, None)


async def delete_image(context: Context, operation: Operation, actor: Actor, name: str) -> Answer:
    """204; 404 `not_found`, 409 `image_in_use` with the counts of what needs it."""

    async def effect(tx: Transaction) -> Done:
        await images.delete_unused_image(tx, name)
        await audit.record(tx, actor, "image.delete", f"images/{name}", {}, operation.request_id)
        return Done(204, None)

    return await run_once(context, operation, effect, None)
