"""Make or change a region."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, offers
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def put_region(context: Context, operation: Operation, actor: Actor, region: offers.Region) -> Answer:
    """200 with the region, or 201 when it was made."""

    async def effect(tx: Transaction) -> Done:
        written, made = await offers.put_region(tx, region)
        await audit.record(tx, actor, "region.put", f"regions/{region.name}", asdict(written), operation.request_id)
        return Done(201 if made else 200, asdict(written))

    return await run_once(context, operation, effect, None)
