"""Make a consumer of the log known, so that nothing is truncated that it has not done."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.store import consumers as consumer_positions
from orchestrator.log.store import truncation
from orchestrator.log.store.consumers import raise_position
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor


async def register_consumer(context: Context, consumer: str) -> None:
    """It begins where the log does. One that is known already stays where it is."""
    await transact(context, lambda tx: truncation.register_consumer(tx, consumer))


async def raise_consumer_position(context: Context, consumer: str, version: int) -> None:
    """Everything at or below `version` is done. An older version than the one known changes nothing."""
    await transact(context, lambda tx: raise_position(tx, consumer, version))


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
