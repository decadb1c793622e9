"""A consumer of the log gives up on an event."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.store import dead_letters
from orchestrator.log.store.dead_letters import Burial
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor


async def bury_event(context: Context, burial: Burial) -> bool:
    """Keep the event as a dead letter; the consumer may then acknowledge it. Repeating it makes no second one.

    False if a person discarded it, or a retry handled it, before it came again.
    """
    return await transact(context, lambda tx: dead_letters.bury(tx, burial))


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


async def retire_dead_letters(context: Context, retention_seconds: float, limit: int) -> int:
    """Forget at most `limit` that were settled longer ago than `retention_seconds`; how many there were."""
    return await transact(context, lambda tx: dead_letters.delete_settled(tx, retention_seconds, limit))


async def settle_retry(context: Context, dead_letter_id: UUID, failure: tuple[str, str] | None = None) -> bool:
    """Record a retry: settled without `failure` (reason, detail), else dead again. False if it was settled meanwhile."""
    return await transact(context, lambda tx: dead_letters.settle_retry(tx, dead_letter_id, failure))
