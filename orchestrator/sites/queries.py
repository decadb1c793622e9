"""Sites and BMCs, for operators; and whether the certificate of an agent still counts."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.calls import CallGroup
from orchestrator.database.transactions import Database
from orchestrator.nodes.deploy_systems import run_store, task_store
from orchestrator.nodes.deploy_systems.run_rules import RunKind
from orchestrator.nodes.store import certificates, enrolment, nodes
from orchestrator.nodes.store.certificates import Standing
from orchestrator.nodes.store.enrolment import NOT_VALID
from orchestrator.nodes.store.holders import Holder
from orchestrator.operations.execution import Context
from orchestrator.problems import NotFound, Unauthenticated
from orchestrator.sites.documents import adoption_document, bmc_document, run_document, site_document
from orchestrator.sites.store import adoptions, agents, bmc_tasks, bmcs, firmware_updates, liveness, sites
from orchestrator.sites.store.bmcs import Bmc
from orchestrator.sites.store.liveness import ListedBmc
from orchestrator.sites.store.sites import Site, SiteCensus
from orchestrator.tasks.store import site_tasks


async def find_site(database: Database, site: UUID | str) -> JsonObject:
    """One site by id or name, with its agents. Raises `NotFound`."""
    async with database.reading() as reading:
        found = await sites.read_site(reading, site)
        return site_document(found, (await agents.agents_of(reading, [found.id]))[found.id])


async def list_sites(database: Database, after: UUID, limit: int) -> tuple[list[Site], dict[UUID, JsonObject]]:
    """Up to `limit` sites after this id, and their documents by id."""
    async with database.reading() as reading:
        found = await sites.list_sites(reading, after, limit)
        of_site = await agents.agents_of(reading, [site.id for site in found])
    return found, {site.id: site_document(site, of_site[site.id]) for site in found}


async def find_bmc(database: Database, node_id: UUID) -> JsonObject:
    """The BMC of a node, with its newest task. Raises `NotFound`."""
    async with database.reading() as reading:
        found = await bmcs.read_bmc(reading, node_id)
        return bmc_document(found, (await bmc_tasks.newest_tasks(reading, [node_id])).get(node_id))


async def list_bmcs(
    database: Database, site_id: UUID | None, after: UUID, limit: int
) -> tuple[list[Bmc], dict[UUID, JsonObject]]:
    """Up to `limit` BMCs of nodes after this one, of this site if it is given, and their documents by node."""
    async with database.reading() as reading:
        found = await bmcs.list_bmcs(reading, site_id, after, limit)
        newest = await bmc_tasks.newest_tasks(reading, [bmc.node_id for bmc in found])
    return found, {bmc.node_id: bmc_document(bmc, newest.get(bmc.node_id)) for bmc in found}


async def find_agent_standing(database: Database, agent_id: UUID, serial: str) -> Standing:
    """The agent behind a verified certificate. Raises `Unauthenticated` if it no longer counts, `IdentityConflict`."""
    async with database.read_one() as reading:
        return await certificates.require_standing(reading, agent_id, serial, Holder.SITE_AGENT)


async def require_known_agent_token(database: Database, token_hash: bytes) -> None:
    """Raise `Unauthenticated` for a token that was never made. Uses no connection that an authenticated request may need."""
    async with database.read_call(CallGroup.ANYONE) as call:
        if not await enrolment.is_token_known(call, token_hash, Holder.SITE_AGENT):
            raise Unauthenticated(NOT_VALID)


async def take_site_census(context: Context) -> list[SiteCensus]:
    """Machines, open tasks and lease of each site, for gauges."""
    async with context.database.reading() as reading:
        return await sites.take_census(reading)


async def find_open_updates(context: Context, limit: int) -> list[tuple[UUID, UUID]]:
    """At most `limit` windows and nodes whose update of firmware can begin, is over, or is not made any more."""
    async with context.database.reading() as reading:
        return await firmware_updates.find_open(reading, limit)


async def find_bmc_tasks_to_advance(context: Context, limit: int) -> list[UUID]:
    """Tasks about BMCs that can be signed, or whose wait is over: at most `limit` of each."""
    async with context.database.reading() as reading:
        overdue = await bmc_tasks.find_overdue(reading, limit)
        return [*overdue, *await bmc_tasks.find_ready(reading, limit)]


async def find_run(database: Database, node_id: UUID) -> JsonObject:
    """The newest run of a deploy system of a node, with what its wipe has reported. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        found = await run_store.read_newest(reading, node_id)
        if found is None:
            raise NotFound("no run of a deploy system was requested for this node")
        wipe = None
        if found.kind is RunKind.WIPE:
            outcome, report = await task_store.read_result(reading, found.deploy_task_id)
            wipe = None if report is None else {"proven": outcome == "completed", "report": report}
    return run_document(found, wipe)


async def find_adoption(database: Database, node_id: UUID) -> JsonObject:
    """The adoption of the allocation that is on the node. Raises `NotFound`."""
    async with database.reading() as reading:
        await nodes.read_node(reading, node_id)
        found = await adoptions.read_adoption_of(reading, node_id)
        if found is None:
            raise NotFound("no adopted machine is rented on this node")
        return await adoption_document(reading, node_id, found)


async def find_runs_to_advance(context: Context, limit: int) -> list[UUID]:
    """Nodes whose run of a deploy system has a next step, or that wait for one: at most `limit` of each."""
    async with context.database.reading() as reading:
        return [*await run_store.find_movable(reading, limit), *await site_tasks.find_waiting(reading, limit)]


async def list_machines(
    database: Database, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, after: UUID, limit: int
) -> tuple[list[ListedBmc] | None, datetime]:
    """Up to `limit` BMCs of the agent's site after this node, None if it does not hold the lease that it named; and the time."""
    async with database.reading() as reading:
        return await liveness.read_machines(reading, agent_id, serial, run_id, lease_fence, after, limit)


async def find_turned_nodes(context: Context, silent_seconds: float, limit: int) -> list[UUID]:
    """At most `limit` nodes without an agent whose liveness is no longer that of their BMC."""
    async with context.database.reading() as reading:
        return await liveness.find_turned(reading, silent_seconds, limit)
