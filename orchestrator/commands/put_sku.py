"""Make or change what is sold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, offers
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


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
) -> Answer:
    """200 with the SKU, or 201 when it was made. What runs keeps the price version it was created with."""

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
        )
        await audit.record(tx, actor, "sku.put", f"skus/{name}", asdict(written), operation.request_id)
        return Done(201 if made else 200, asdict(written))

    return await run_once(context, operation, effect, None)
