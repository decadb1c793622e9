"""An operator asks for a dead letter to be handled again."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.domain.states import Actor
from orchestrator.execution import Context, Done, run_once
from orchestrator.store import audit, dead_letters
from orchestrator.store.database import Transaction
from orchestrator.store.operations import Answer, Operation


async def retry_dead_letter(context: Context, operation: Operation, actor: Actor, dead_letter_id: UUID) -> Answer:
    """202 with the dead letter; its consumer hands the event of the log to the same handler at its next look.

    Refusals: `NotFound`; `InvalidState` for one that is settled. Asking again before the look changes nothing.
    """

    async def effect(tx: Transaction) -> Done:
        found = await dead_letters.lock_dead(tx, dead_letter_id)
        await dead_letters.ask_for_retry(tx, dead_letter_id)
        detail = {"consumer": found.consumer, "version": found.version, "reason": found.reason}
        await audit.record(
            tx, actor, "dead_letter.retry", f"dead-letters/{dead_letter_id}", detail, operation.request_id
        )
        return Done(202, asdict(await dead_letters.read_dead_letter(tx, dead_letter_id)), dead_letter_id)

    return await run_once(context, operation, effect, None)
