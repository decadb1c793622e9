"""Reads of node tasks, for the sweepers and for nodes that poll."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from orchestrator.database.calls import CallGroup
from orchestrator.operations.execution import Context
from orchestrator.tasks.store import expiry
from orchestrator.tasks.store.polls import Polling, read_polling


async def find_expired_tasks(context: Context, grace_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` live tasks whose deadline passed more than `grace_seconds` ago, the earliest first."""
    async with context.database.reading() as reading:
        return await expiry.find_expired_tasks(reading, grace_seconds, limit)


async def find_polling(context: Context, nodes: Sequence[tuple[UUID, str]]) -> list[Polling | None]:
    """For each (node, certificate serial) in turn its epoch and tasks; None if its certificate does not count."""
    async with context.database.read_call(CallGroup.NODES) as call:
        return await read_polling(call, nodes)
