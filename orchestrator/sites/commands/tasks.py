"""Sign requested tasks about BMCs, and end those without a report: the worker's commands."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from node_agent.wire.sites import BmcTaskKind, BmcTaskParameters
from orchestrator.audit import store as audit
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import run_store
from orchestrator.nodes.deploy_systems import store as deploy_systems
from orchestrator.nodes.deploy_systems.refusals import DETAILS
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context, transact
from orchestrator.sites.bmc_events import emit_reset_ended
from orchestrator.sites.boots import permit_boot
from orchestrator.sites.ports import orders as port_orders
from orchestrator.sites.rules import SEALING, STOPPING, task_seconds_max, verdict_of_silence
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.sites.store import agents, bmc_tasks, bmcs, firmware_updates, sites
from orchestrator.sites.store.bmc_tasks import BmcTask
from orchestrator.sites.store.bmcs import Bmc
from orchestrator.sites.store.task_parameters import parameters_of
from orchestrator.sites.tenancies import server_of
from orchestrator.tenants.principals import Actor, ActorKind

_WORKER = Actor(ActorKind.WORKER, "bmc_tasks")


class Advanced(StrEnum):
    """What became of a task."""

    ISSUED = "issued"
    FAILED = "failed"
    UNKNOWN = "unknown"


async def advance_bmc_task(context: Context, task_id: UUID) -> Advanced | None:
    """Sign a requested task, or end one whose wait is over, evaluated after the locks. None: there is nothing to do."""

    async def work(tx: Transaction) -> Advanced | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        found = await bmc_tasks.read_task(tx, task_id)
        if found is None:
            return None
        await nodes.lock_node(tx, found.node_id)
        recovery_key = await sites.lock_site(tx, found.site_id)
        bmc = await bmcs.lock_bmc(tx, found.node_id)
        task = await bmc_tasks.lock_task(tx, task_id)
        if bmc is None or task is None or task.outcome is not None:
            return None
        clock = await read_clock(tx)
        if task.waits_until is not None and task.waits_until <= clock:
            return await _end(tx, task, *verdict_of_silence(task.issued_at is not None, task.dispatched_at is not None))
        if task.issued_at is not None:
            return None
        if task.kind in STOPPING and (obstacle := await _obstacle(tx, task)) is not None:
            return await _end(tx, task, BmcTaskOutcome.FAILED, obstacle)
        try:
            ports = await port_orders.order_of(tx, task, await run_store.read_open(tx, bmc.node_id))
        except port_orders.NoSegment as problem:
            return await _end(tx, task, BmcTaskOutcome.FAILED, str(problem))
        parameters = (await _parameters(tx, bmc, task, recovery_key)).model_copy(update={"ports": ports})
        if task.kind is BmcTaskKind.START_DEPLOY:
            keys = await agents.sealing_keys(tx, bmc.site_id)
            parameters = parameters.model_copy(update={"boot": await permit_boot(tx, bmc, keys)})
        elif task.kind is BmcTaskKind.REACH:
            run = await run_store.read_open(tx, bmc.node_id)
            assert run is not None, "only a run requests it"
            parameters = parameters.model_copy(update={"reach": await server_of(tx, run)})
        seconds_max = task_seconds_max(task.kind)
        if task.kind is BmcTaskKind.FIRMWARE:
            ordered = await firmware_updates.read_order(tx, task.node_id, task.id)
            if ordered is None:
                return await _end(tx, task, BmcTaskOutcome.FAILED, "no_order: no maintenance window orders it")
            parameters, seconds_max = parameters.model_copy(update={"firmware": ordered.order}), ordered.seconds_max
        await bmc_tasks.issue_task(tx, context.signer, task, clock, parameters, seconds_max)
        return Advanced.ISSUED

    return await transact(context, work)


async def _parameters(tx: Transaction, bmc: Bmc, task: BmcTask, recovery_key: bytes) -> BmcTaskParameters:
    """What the agent needs: no recipients where no password is sealed."""
    keys = await agents.sealing_keys(tx, bmc.site_id)
    recipients = {bmc.site_id: recovery_key, **keys} if task.kind in SEALING else {}
    found = await parameters_of(tx, bmc, keys)
    return found.model_copy(update={"recipients": {one: key.hex() for one, key in recipients.items()}})


async def _obstacle(tx: Transaction, task: BmcTask) -> str | None:
    """Why a system on the machine must not be ended, evaluated again: a claim may have come since the request, or may have ended
    for which the run is."""
    run = await run_store.read_open(tx, task.node_id)
    claim_id = None if run is None else run.claim_id
    found = (await deploy_systems.read_use(tx, task.node_id, claim_id)).obstacle(writing=False)
    return None if found is None else f"{found}: {DETAILS[found]}"


async def _end(tx: Transaction, task: BmcTask, outcome: BmcTaskOutcome, failure: str) -> Advanced:
    await bmc_tasks.end_task(tx, task.id, outcome, failure)
    await emit_reset_ended(tx, task, outcome.value, failure)
    await port_orders.note_ended(tx, task, outcome.value, failure, None)
    said = {"task_id": str(task.id), "kind": task.kind.value, "outcome": outcome.value, "failure": failure}
    await audit.record(tx, _WORKER, "node.bmc_task_ended", f"nodes/{task.node_id}", said, None)
    return Advanced(outcome.value)
