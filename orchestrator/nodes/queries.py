"""The fleet, for operators; and whether a node's certificate still counts."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.calls import CallGroup
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database
from orchestrator.nodes.states import ShownState
from orchestrator.nodes.store import certificates as node_certificates
from orchestrator.nodes.store import enrolment, nodes, pools, silence
from orchestrator.nodes.store.certificates import Standing
from orchestrator.nodes.store.enrolment import NOT_VALID
from orchestrator.nodes.store.nodes import Node
from orchestrator.nodes.store.orphans import Orphan, list_orphans
from orchestrator.nodes.store.pools import Pool
from orchestrator.nodes.store.quarantines import Quarantine, list_quarantines
from orchestrator.operations.execution import Context
from orchestrator.problems import Unauthenticated


async def find_node(database: Database, node: UUID | str) -> JsonObject:
    """One node by id or name, with its slots and their holders. Raises `NotFound`."""
    async with database.reading() as reading:
        if isinstance(node, UUID):
            found = await nodes.read_node(reading, node)
        else:
            found = await nodes.read_node_by_name(reading, node)
        return await nodes.node_document(reading, found)


async def list_nodes(
    database: Database, *, state: ShownState | None, region: str | None, after: UUID, limit: int
) -> list[Node]:
    """Up to `limit` nodes after this id, without their slots."""
    return await read_replicated(
        database, lambda reading: nodes.list_nodes(reading, state=state, region=region, after=after, limit=limit)
    )


async def list_pools(database: Database, *, after: int, limit: int) -> list[Pool]:
    """Up to `limit` pools with ids after this one."""
    async with database.reading() as reading:
        return await pools.list_pools(reading, after, limit)


async def find_standing(database: Database, node_id: UUID, serial: str) -> Standing:
    """The node behind a verified certificate. Raises `Unauthenticated` if it no longer counts."""
    async with database.read_one() as reading:
        return await node_certificates.require_standing(reading, node_id, serial)


async def require_known_token(database: Database, token_hash: bytes) -> None:
    """Raise `Unauthenticated` for a token that was never made. Uses no connection that an authenticated request may need."""
    async with database.read_call(CallGroup.ANYONE) as call:
        if not await enrolment.is_token_known(call, token_hash):
            raise Unauthenticated(NOT_VALID)


async def list_orphans_of_node(
    database: Database, node_id: UUID, *, every: bool, after: UUID, limit: int
) -> list[Orphan]:
    """Up to `limit` orphans of the node, the oldest first; with `every`, also those destroyed. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await list_orphans(reading, node_id, every=every, after=after, limit=limit)


async def list_quarantines_of_node(
    database: Database, node_id: UUID, *, every: bool, after: UUID, limit: int
) -> list[Quarantine]:
    """Up to `limit` quarantines of the node's slots, the oldest first; with `every`, also those that ended.

    Raises `NotFound`.
    """
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await list_quarantines(reading, node_id, every=every, after=after, limit=limit)


async def find_silent_nodes(context: Context, silent_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` nodes marked online without a heartbeat for `silent_seconds`, the longest silent first."""
    async with context.database.reading() as reading:
        return await silence.find_silent_nodes(reading, silent_seconds, limit)
