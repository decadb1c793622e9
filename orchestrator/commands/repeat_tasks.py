"""Hand dispatched tasks out once more, for an agent that does not have them (a lost answer, a restart)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.execution import Context
from orchestrator.store.dispatch import Dispatched, hand_out_again


async def repeat_tasks(context: Context, node_id: UUID, epoch: int, known: Sequence[UUID]) -> list[Dispatched]:
    """The node's dispatched, unfinished tasks besides those it says it has journaled: the same envelopes."""
    async with context.database.statement() as tx:
        return await hand_out_again(tx, node_id, epoch, known)
