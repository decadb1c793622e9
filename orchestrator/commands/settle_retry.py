"""A consumer tells how the retry of a dead letter went."""

from __future__ import annotations

from uuid import UUID

from orchestrator.execution import Context, transact
from orchestrator.store import dead_letters


async def settle_retry(context: Context, dead_letter_id: UUID, failure: tuple[str, str] | None = None) -> bool:
    """Retried if there was no failure (reason, detail), else dead as before. False if it was settled meanwhile."""
    return await transact(context, lambda tx: dead_letters.settle_retry(tx, dead_letter_id, failure))
