"""The lease of a site: one process of one agent holds it, under a fence that each change of hands raises (P7)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from node_agent.wire.sites import LeaseRequest
from orchestrator.audit import store as audit
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.problems import InvalidState
from orchestrator.sites.rules import actor_of, may_hold
from orchestrator.sites.store import agents, bmc_tasks, sites
from orchestrator.sites.store.bmc_tasks import Leased


@dataclass(frozen=True, slots=True)
class Held:
    """Whether the caller holds the lease of its site from now on, under which fence, and the database's time."""

    site_id: UUID
    held: bool
    fence: int
    clock: datetime


async def take_site_lease(
    context: Context, agent_id: UUID, wanted: LeaseRequest, seconds: float, request_id: str
) -> Held:
    """Take, keep or give up the lease of the agent's site, and note that the agent was heard of.

    Raises `InvalidState` if the agent has another sealing key since it enrolled: it must enrol again.
    """

    async def work(tx: Transaction) -> Held:
        site_id, lease = await sites.lock_lease(tx, agent_id)
        agent = await agents.lock_agent(tx, agent_id)
        if not await agents.take_sealing_key(tx, agent, bytes.fromhex(wanted.sealing_key)):
            raise InvalidState(
                "the agent has another sealing key than when it enrolled; enrol it again", state="sealing_key"
            )
        await agents.note_seen(tx, agent_id, wanted.agent_version)
        clock = await read_clock(tx)
        is_mine = lease.is_of(agent_id, wanted.run_id)
        if wanted.release:
            if is_mine:
                await sites.give_up_lease(tx, site_id)
            return Held(site_id, False, lease.fence, clock)
        if not may_hold(lease, agent_id, wanted.run_id, clock):
            return Held(site_id, False, lease.fence, clock)
        fence = lease.fence if is_mine else lease.fence + 1
        await sites.hold_lease(tx, site_id, agent_id, wanted.run_id, fence, seconds)
        if not is_mine:
            said = {"fence": fence, "run_id": str(wanted.run_id), "agent_before": lease.agent and str(lease.agent)}
            await audit.record(tx, actor_of(agent_id), "site.take_lease", f"sites/{site_id}", said, request_id)
        return Held(site_id, True, fence, clock)

    return await transact(context, work)


async def lease_bmc_tasks(
    context: Context, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, known: list[UUID], limit: int,
    reach_limit: int | None = None,
) -> list[Leased] | None:  # fmt: skip
    """Tasks for the holder of this lease besides those it knows; None if the caller does not hold it.

    `reach_limit`: as of `bmc_tasks.lease_bmc_tasks`.
    """
    async with context.database.autocommit() as tx:
        return await bmc_tasks.lease_bmc_tasks(tx, agent_id, serial, run_id, lease_fence, known, limit, reach_limit)
