"""Make a consumer of the log known, so that nothing is truncated that it has not done."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store import truncation


async def register_consumer(context: Context, consumer: str) -> None:
    """It begins where the log does. One that is known already stays where it is."""
    await transact(context, lambda tx: truncation.register_consumer(tx, consumer))
