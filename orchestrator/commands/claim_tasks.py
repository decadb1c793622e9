"""Hand queued tasks to the nodes that wait for them (DESIGN §9)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.execution import Context
from orchestrator.store.dispatch import Dispatched, claim_queued_tasks


async def claim_tasks(context: Context, waiting: Sequence[tuple[UUID, str]], *, batch_max: int) -> list[Dispatched]:
    """Flip queued tasks of these (node, certificate serial) pairs to dispatched and answer them, oldest first."""
    async with context.database.statement() as tx:
        return await claim_queued_tasks(tx, waiting, batch_max=batch_max)
