"""A consumer of the log says how far it is done."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store.consumer_positions import raise_position


async def raise_consumer_position(context: Context, consumer: str, version: int) -> None:
    """Everything at or below `version` is done. An older version than the one known changes nothing."""
    await transact(context, lambda tx: raise_position(tx, consumer, version))
