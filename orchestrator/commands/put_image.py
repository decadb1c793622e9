"""Make or change an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, offers
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


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
) -> Answer:
    """200 with the image, or 201 when it was made."""

    async def effect(tx: Transaction) -> Done:
        written, made = await offers.put_image(
            tx, name=name, url=url, sha256=sha256, shapes=shapes, gpu_models=gpu_models, regions=regions, state=state
        )
        await audit.record(tx, actor, "image.put", f"images/{name}", asdict(written), operation.request_id)
        return Done(201 if made else 200, asdict(written))

    return await run_once(context, operation, effect, None)
