"""Subscribers of notifications say how far they are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from orchestrator.execution import Context, transact
from orchestrator.store.subscriptions import raise_positions


async def acknowledge_events(
    context: Context, acknowledged: Sequence[tuple[UUID, str, int]], kept_seconds: float
) -> Mapping[tuple[UUID, str], int]:
    """Everything up to these versions is acknowledged; positions never go back. Answers where each stands; one that was
    removed meanwhile is missing.
    """
    return await transact(context, lambda tx: raise_positions(tx, acknowledged, kept_seconds))
