"""Reads topologies, outside commands."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Database
from orchestrator.nodes.store import nodes, topologies
from orchestrator.nodes.store.topologies import NodeTopology
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound


async def find_topology(database: Database, node_id: UUID) -> NodeTopology:
    """A node's topology. Raises `NotFound` if there is no such node, or no discovery was issued to it yet."""
    async with database.reading() as reading:
        node = await nodes.read_node(reading, node_id)
        known = await topologies.read_topology(reading, node_id)
    if known is None:
        raise NotFound(f"no discovery was issued to node {node.name} yet")
    return known


async def find_due_nodes(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes whose discovery is due, the longest due first."""
    async with context.database.reading() as reading:
        return await topologies.find_due_nodes(reading, limit)


async def find_ended_discoveries(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with an open discovery whose task is over."""
    async with context.database.reading() as reading:
        return await topologies.find_ended(reading, limit)


async def count_topologies(context: Context) -> dict[str, int]:
    """How many nodes in service are `unapproved`, `drifted`, `failed`."""
    async with context.database.reading() as reading:
        return await topologies.count_topologies(reading)
