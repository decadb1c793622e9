"""Runs of deploy systems: requested and stopped by operators, moved by the worker one step in each transaction."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid4

from node_agent.wire.deploy_tasks import MetalInspectReport
from node_agent.wire.sites import BmcTaskKind
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.deploy_systems import run_store, store
from orchestrator.nodes.deploy_systems.refusals import NotWipeable
from orchestrator.nodes.deploy_systems.root_disks import RootDiskHint
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.nodes.deploy_systems.run_rules import (
    RUN_SECONDS_MAX,
    SITE_STEP_SECONDS_MAX,
    Move,
    Next,
    RunKind,
    RunOutcome,
    RunStep,
    next_move,
    outcome_of,
    work_step_seconds,
)
from orchestrator.nodes.deploy_systems.run_store import DeployRun, RunWork
from orchestrator.nodes.deploy_systems.uses import require_no_run, require_unused
from orchestrator.nodes.deploy_systems.wipe_orders import wipe_of
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.sites import firmware
from orchestrator.sites.documents import run_document
from orchestrator.sites.findings import finding_of, quarantine_node
from orchestrator.sites.ports.rules import Place
from orchestrator.sites.ports.store import want_place
from orchestrator.sites.rules import REQUEST_SECONDS_MAX
from orchestrator.sites.run_orders import RunOrder, insert_ordered, medium_of, require_idle
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.sites.store import bmc_tasks, bmcs
from orchestrator.sites.tenancies import INSPECTION, conclude, needs_inspection, open_waiting, released_unseen
from orchestrator.tenants.principals import Actor, ActorKind

_WORKER = Actor(ActorKind.WORKER, "deploy_runs")


async def request_run(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, order: RunOrder, addresses: Addresses
) -> Answer:
    """200 with the run, at its first step; an open run of the same kind is the answer, unless another root disk is wanted.

    Refusals, which change nothing: `NotFound` (no node, or no BMC), `NodeInUse`, `InvalidState` (the node is in service, or
    something works on its machine), `MachineUnknown`, `NotWipeable`, `Invalid` without a network. A wipe is refused in a
    maintenance window too. A wipe of a node that is awaited after a restore performs the release that waits for it; of an adopted
    machine it inspects first, and is requested again then.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        bmc = await bmcs.lock_bmc(tx, node_id)
        if bmc is None:
            raise NotFound(f"node {node_id} has no BMC: berth node bmc set")
        known = await run_store.read_open(tx, node_id)
        if known is not None and known.kind is order.kind:
            _require_same_root_disk(known, order)
            return Done(200, run_document(known), node_id)
        await require_no_run(tx, node_id)
        owner = await released_unseen(tx, node_id) if order.kind is RunKind.WIPE else None
        if owner is None:
            await require_unused(tx, node_id, None, writing=order.kind is RunKind.WIPE)
        await require_idle(tx, node_id)
        is_unseen = owner is not None and await needs_inspection(tx, owner.allocation_id)
        work = INSPECTION if is_unseen else await _work(tx, node_id, order)
        medium = await medium_of(tx, bmc, order)
        await insert_ordered(tx, bmc, work, medium, addresses, f"{actor.kind.value}:{actor.id}", owner)
        said = {"kind": work.kind.value, **medium, "disks": work.parameters.get("disks")}
        await audit.record(tx, actor, "node.request_deploy_run", f"nodes/{node_id}", said, operation.request_id)
        return await _shown(tx, node_id)

    return await run_once(context, operation, effect, None)


def _require_same_root_disk(run: DeployRun, order: RunOrder) -> None:
    """Return if the open run has the hint of the order, or the order has none. Raises `InvalidState`."""
    if order.root_disk is not None and order.root_disk != RootDiskHint.of(run.medium):
        raise InvalidState(
            "a run of a deploy system with another root disk is open on the node; wait for its end, or stop it:"
            " berth node run --stop, then give the root disk again",
            state="run_open",
        )


async def _work(tx: Transaction, node_id: UUID, order: RunOrder) -> RunWork:
    """What the deploy system does; a wipe erases what the newest inspection found. Raises `NotWipeable`."""
    if order.kind is RunKind.INSPECT:
        return RunWork(order.kind, {}, RUN_SECONDS_MAX)
    known = await store.read_machine(tx, node_id)
    if known is None:
        raise NotWipeable(
            "the machine was not inspected, so that its disks are not known: berth node inspect", reason="not_inspected"
        )
    if order.smbios_uuid not in (None, known.smbios_uuid):
        raise NotWipeable(
            f"the newest inspection is of the machine {known.smbios_uuid}: inspect this one first",
            reason="other_machine",
        )
    return wipe_of(MetalInspectReport.model_validate(known.report))


async def stop_run(context: Context, operation: Operation, actor: Actor, node_id: UUID) -> Answer:
    """200 with the run: its permission ends at once, and the worker switches the machine off and takes the medium away.

    Refusals: `NotFound`, `InvalidState` if no run is open, or if it is an allocation's. Repeating it changes nothing.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        run = await run_store.read_open(tx, node_id)
        if run is None:
            raise InvalidState("no run of a deploy system is open on the node", state="no_run")
        if run.allocation_id is not None:
            raise InvalidState(
                f"the run is of allocation {run.allocation_id}; it ends when that is released: berth force-release",
                state="run_of_allocation",
            )
        await run_store.request_stop(tx, run.id, f"{actor.kind.value}:{actor.id}")
        if run.deploy_epoch is not None:
            await store.end_permission(tx, node_id, "revoked")
        said = {"deploy_run": str(run.id), "step": run.step.value}
        await audit.record(tx, actor, "node.stop_deploy_run", f"nodes/{node_id}", said, operation.request_id)
        return await _shown(tx, node_id)

    return await run_once(context, operation, effect, None)


async def _shown(tx: Transaction, node_id: UUID) -> Done:
    run = await run_store.read_newest(tx, node_id)
    assert run is not None, "it is open"
    return Done(200, run_document(run), node_id)


async def advance_run(context: Context, node_id: UUID) -> Move | None:
    """Move the open run of the node by one step, or open the one that an allocation waits for, under the locks of node and BMC.

    None: its task is under way, or there is none.
    """

    async def work(tx: Transaction) -> Move | None:
        await nodes.lock_node(tx, node_id)
        bmc = await bmcs.lock_bmc(tx, node_id)
        run = await run_store.read_open(tx, node_id)
        if run is None:
            return await open_waiting(tx, node_id, bmc)
        standing = await run_store.read_standing(tx, run)
        following = next_move(standing)
        return None if following is None else await _move(tx, run, following, standing.is_stopped)

    return await transact(context, work)


_REQUESTS: Final = {
    Move.START: (RunStep.START, BmcTaskKind.START_DEPLOY),
    Move.TO_PROVISIONING: (RunStep.TO_PROVISIONING, BmcTaskKind.MOVE_PORTS),
    Move.TO_PROVISIONING_AGAIN: (RunStep.TO_PROVISIONING, BmcTaskKind.MOVE_PORTS),
    Move.TO_TENANT: (RunStep.TO_TENANT, BmcTaskKind.MOVE_PORTS),
    Move.TO_TENANT_AGAIN: (RunStep.TO_TENANT, BmcTaskKind.MOVE_PORTS),
    Move.EJECT: (RunStep.EJECT, BmcTaskKind.EJECT),
    Move.POWER_ON: (RunStep.POWER_ON, BmcTaskKind.POWER_ON),
    Move.REACH: (RunStep.REACH, BmcTaskKind.REACH),
    Move.ROTATE: (RunStep.ROTATE, BmcTaskKind.ROTATE),
    Move.ROTATE_AGAIN: (RunStep.ROTATE, BmcTaskKind.ROTATE),
}


_PLACES: Final = {RunStep.TO_PROVISIONING: Place.PROVISIONING, RunStep.TO_TENANT: Place.TENANT}
"""Where a step moves the ports of the machine."""


async def _move(tx: Transaction, run: DeployRun, following: Next, is_stopped: bool) -> Move:
    failure = following.failure or run.failure
    if following.move is Move.WORK:
        task = await bmc_tasks.lock_open(tx, run.node_id)
        if task is not None:
            await bmc_tasks.end_task(tx, task.id, BmcTaskOutcome.COMPLETED, None)
        await run_store.set_step(tx, run.id, RunStep.WORK, None, failure, work_step_seconds(run.work_seconds))
        return following.move
    await bmc_tasks.end_open(tx, run.node_id, "run_ended: its run goes on without it")
    if following.move is Move.CLOSE:
        return await _close(tx, run, failure, is_stopped, following.finding)
    if following.move in _REQUESTS:
        if following.move is Move.REACH and run.kind is RunKind.RESCUE:
            await store.end_permission(tx, run.node_id, "handed_over")
        await _request(tx, run, *_REQUESTS[following.move], failure)
    else:
        await store.end_permission(tx, run.node_id, "revoked")
        await _request(tx, run, RunStep.END, BmcTaskKind.END_DEPLOY, failure)
    return following.move


async def _request(tx: Transaction, run: DeployRun, step: RunStep, kind: BmcTaskKind, failure: str | None) -> None:
    """Have the site perform the task of a step."""
    task = await bmc_tasks.request_task(
        tx, run.node_id, run.site_id, kind, f"deploy_run:{run.id}", REQUEST_SECONDS_MAX
    )  # fmt: skip
    await run_store.set_step(tx, run.id, step, task.id, failure, SITE_STEP_SECONDS_MAX)
    if step in _PLACES:
        await want_place(tx, run.node_id, run.site_id, _PLACES[step], task.id)


async def _close(tx: Transaction, run: DeployRun, failure: str | None, is_stopped: bool, finding: str | None) -> Move:
    outcome = outcome_of(failure, is_stopped)
    findings = [] if finding is None else [finding_of(finding)]
    if outcome is RunOutcome.COMPLETED and run.kind is RunKind.INSPECT:
        await firmware.note_inspected(tx, run)
    if outcome is RunOutcome.COMPLETED and run.kind is RunKind.WIPE and run.task_id is not None:
        findings += await firmware.objected(tx, run)
    if findings:
        await quarantine_node(tx, run, findings, _WORKER)
    await conclude(tx, run, outcome, failure)
    await run_store.end_run(tx, run.id, outcome, failure, findings)
    said = {"kind": run.kind.value, "outcome": outcome.value, "failure": failure, "findings": findings}
    await audit.record(
        tx, _WORKER, "node.deploy_run_ended", f"nodes/{run.node_id}", {"deploy_run": str(run.id), **said}, None
    )
    ended = {"node_id": run.node_id, "deploy_run_id": run.id, **said}
    await append_events(tx, [Event(EventType.NODE_DEPLOY_RUN_ENDED, f"nodes/{run.node_id}", uuid4(), None, ended)])
    return Move.QUARANTINE if findings else Move.CLOSE
