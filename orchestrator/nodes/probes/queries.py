"""Reads the health of nodes, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.nodes.store import burn_ins, nodes, probes
from orchestrator.nodes.store.burn_ins import BurnIn
from orchestrator.nodes.store.probes import NodeHealth, StoredReport
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound


async def find_health(database: Database, node_id: UUID) -> tuple[NodeHealth, BurnIn | None]:
    """A node's health, and its last burn-in. Raises `NotFound` if there is no such node, or no probe was issued to it yet."""
    async with database.reading() as reading:
        node = await nodes.read_node(reading, node_id)
        known = await probes.read_health(reading, node_id)
        last = await burn_ins.list_burn_ins(reading, node_id, before=None, limit=1)
    if known is None:
        raise NotFound(f"no health probe was issued to node {node.name} yet")
    return known, last[0] if last else None


async def list_health_reports(
    database: Database, node_id: UUID, *, before: UUID | None, limit: int
) -> list[StoredReport]:
    """Up to `limit` reports of the node before this one, the newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await probes.list_reports(reading, node_id, before=before, limit=limit)


async def find_due_probes(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes whose probe is due, the longest due first."""
    async with context.database.reading() as reading:
        return await probes.find_due_probes(reading, limit)


async def find_ended_probes(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with an open probe whose task is over."""
    async with context.database.reading() as reading:
        return await probes.find_ended_probes(reading, limit)


async def count_health(context: Context) -> dict[str, int]:
    """How many nodes in service are `unprobed`, `faulty`, `failed`."""
    async with context.database.reading() as reading:
        return await probes.count_health(reading)
