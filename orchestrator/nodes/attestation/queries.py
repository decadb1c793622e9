"""Reads attestations on demand, outside commands."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Database
from orchestrator.nodes.attestation import store
from orchestrator.nodes.attestation.documents import attestations_document
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context


async def find_attestations(database: Database, node_id: UUID) -> JsonObject:
    """The attestations of a node that are kept, and the PCRs that are accepted. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        kept = await store.list_attestations(reading, node_id)
        return attestations_document(node_id, kept, await store.read_accepted(reading, node_id))


async def find_open_attestations(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with an open attestation that can be signed or judged."""
    async with context.database.reading() as reading:
        return await store.find_open(reading, limit)
