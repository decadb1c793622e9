"""An operator says that a consumer of the log will not come again."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, consumer_positions
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def forget_consumer(context: Context, operation: Operation, actor: Actor, consumer: str, reason: str) -> Answer:
    """200 with where it was, on the record; nothing is kept for it any more. Refusals: `NotFound`; `InvalidState` for
    Berth's own, which do come again.
    """

    async def effect(tx: Transaction) -> Done:
        gone = await consumer_positions.delete_consumer(tx, consumer)
        detail = {"version": gone.version, "reason": reason}
        await audit.record(tx, actor, "consumer.forget", f"consumers/{consumer}", detail, operation.request_id)
        return Done(200, asdict(gone))

    return await run_once(context, operation, effect, None)
