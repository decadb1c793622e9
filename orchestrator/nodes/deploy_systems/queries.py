"""Reads deploy systems and their tasks, and whether a certificate of one still counts."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database
from orchestrator.nodes.deploy_systems import store, task_store
from orchestrator.nodes.deploy_systems.documents import standing_document
from orchestrator.nodes.deploy_systems.refusals import DeploySystemEnded
from orchestrator.nodes.deploy_systems.store import DeployStanding
from orchestrator.nodes.deploy_systems.task_store import DeployTask
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound, Unauthenticated

NOT_KNOWN = "this token of a deploy system is not known; permit it and boot the new medium"


async def require_known_token(database: Database, token_hash: bytes) -> None:
    """Raise `Unauthenticated` for a token that was never made. Uses no connection that an authenticated request may need."""
    async with database.read_call(CallGroup.ANYONE) as call:
        if not await store.is_token_known(call, token_hash):
            raise Unauthenticated(NOT_KNOWN)


async def require_deploy_standing(database: Database, node_id: UUID, deploy_epoch: int, serial: str) -> DeployStanding:
    """The permission behind the certificate of a deploy system, now. Raises `Unauthenticated`, `DeploySystemEnded`."""
    async with database.read_one() as reading:
        return counting(await store.read_standing(reading, node_id, deploy_epoch, serial))


def counting(standing: DeployStanding | None) -> DeployStanding:
    """The standing if it counts. Raises `Unauthenticated` for a certificate that is not ours, `DeploySystemEnded`."""
    if standing is None:
        raise Unauthenticated("this certificate is of no deploy system that was permitted here")
    why = standing.why_ended
    if why is not None:
        raise DeploySystemEnded.because(why)
    return standing


async def find_deploy_system(database: Database, node_id: UUID) -> JsonObject:
    """The newest permission of a node, and its machine as inspected. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        found = await store.read_newest(reading, node_id)
        if found is None:
            raise NotFound("no deploy system was permitted for this node; permit one: berth node deploy-system")
        return standing_document(found, await store.read_machine(reading, node_id))


async def list_deploy_tasks(database: Database, node_id: UUID, *, before: UUID | None, limit: int) -> list[DeployTask]:
    """Up to `limit` tasks of the deploy systems of a node before this one, the newest first. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        return await task_store.list_tasks(reading, node_id, before=before, limit=limit)


async def find_open_deploy_tasks(context: Context, limit: int) -> list[UUID]:
    """At most `limit` nodes with an open task of a deploy system that can be signed or concluded."""
    async with context.database.reading() as reading:
        return await task_store.find_open(reading, limit)
