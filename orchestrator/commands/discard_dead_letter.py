"""An operator says that a dead letter needs no handling."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, dead_letters
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def discard_dead_letter(
    context: Context, operation: Operation, actor: Actor, dead_letter_id: UUID, reason: str
) -> Answer:
    """200 with the dead letter, discarded, on the record. Refusals: `NotFound`; `InvalidState` for a settled one."""

    async def effect(tx: Transaction) -> Done:
        found = await dead_letters.lock_dead(tx, dead_letter_id)
        await dead_letters.discard(tx, dead_letter_id)
        detail = {"consumer": found.consumer, "version": found.version, "reason": reason}
        await audit.record(
            tx, actor, "dead_letter.discard", f"dead-letters/{dead_letter_id}", detail, operation.request_id
        )
        return Done(200, asdict(await dead_letters.read_dead_letter(tx, dead_letter_id)), dead_letter_id)

    return await run_once(context, operation, effect, None)
