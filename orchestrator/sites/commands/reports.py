"""What the holder of a site's lease stores and reports about a task. Without the lease nothing counts (P7, P8)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from node_agent.wire.firmware import StoredProgress, StoreProgress
from node_agent.wire.sites import (
    REPORT_BYTES_MAX,
    BmcTaskAnswer,
    BmcTaskKind,
    BmcTaskReport,
    StoredPassword,
    StorePassword,
)
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.problems import Invalid, NotFound, TooLarge
from orchestrator.sites.bmc_events import emit_password, emit_reset_ended
from orchestrator.sites.ports.orders import OF_PORTS, note_ended, unproven
from orchestrator.sites.rules import DESCRIBED, DESCRIBING, POWERED, actor_of, is_sealed_enough, next_generation
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.sites.store import agents, bmc_tasks, bmcs, firmware_updates, sites
from orchestrator.sites.store.bmc_tasks import BmcTask
from orchestrator.sites.store.bmcs import Bmc


@dataclass(frozen=True, slots=True)
class Locked:
    """A task under its locks, and whether the caller holds the lease that it named."""

    bmc: Bmc
    task: BmcTask
    leased: bool


async def _lock(tx: Transaction, agent_id: UUID, task_id: UUID, lease_fence: int) -> Locked:
    """Share the lease, lock BMC and task. Raises `NotFound` if the task is not of the agent's site."""
    site_id, lease = await sites.share_lease(tx, agent_id)
    found = await bmc_tasks.read_task(tx, task_id)
    bmc = None if found is None or found.site_id != site_id else await bmcs.lock_bmc(tx, found.node_id)
    task = None if bmc is None else await bmc_tasks.lock_task(tx, task_id)
    if bmc is None or task is None:
        raise NotFound(f"this agent's site has no task {task_id}")
    return Locked(bmc, task, (lease.agent, lease.fence) == (agent_id, lease_fence))


async def store_password(
    context: Context, agent_id: UUID, task_id: UUID, body: StorePassword, request_id: str
) -> StoredPassword:
    """Store a sealed password before the BMC receives it, or the copies of one for more recipients; return what is stored.

    The first password that a rotation stores is the one that it gives to the BMC: another agent that goes on with it gets that
    one. Raises `NotFound`, and `Invalid` for another generation, or recipients that are not the site's.
    """

    async def work(tx: Transaction) -> StoredPassword:
        locked = await _lock(tx, agent_id, task_id, body.lease_fence)
        bmc, task = locked.bmc, locked.task
        if not locked.leased or task.outcome is not None or task.fence != body.fence:
            return StoredPassword(stored=False)
        await _require_sealing(tx, agent_id, bmc, task_id, body)
        if task.kind is BmcTaskKind.ROTATE and bmc.pending_generation is None:
            wanted = next_generation(bmc.generation, None)
            if body.generation != wanted:
                raise _invalid("generation", f"the next generation is {wanted}")
            await bmcs.store_sealed(tx, bmc.node_id, wanted, body.sealed)
            await bmcs.set_pending(tx, bmc.node_id, wanted)
            await emit_password(tx, bmc.site_id, bmc.node_id, wanted, given=False)
            said = {"task_id": str(task_id), "generation": wanted}
            await audit.record(
                tx, actor_of(agent_id), "node.bmc_store_password", f"nodes/{bmc.node_id}", said, request_id
            )
            stored = wanted
        elif task.kind is BmcTaskKind.ROTATE:
            assert bmc.pending_generation is not None
            stored = bmc.pending_generation
        elif task.kind is BmcTaskKind.RESEAL and body.generation in (bmc.generation, bmc.pending_generation):
            await bmcs.store_sealed(tx, bmc.node_id, body.generation, body.sealed)
            stored = body.generation
        else:
            raise _invalid("generation", "this task stores no password of this generation")
        kept = (await bmcs.sealed_passwords(tx, bmc.node_id)).get(stored, {})
        return StoredPassword(stored=True, generation=stored, sealed=kept)

    return await transact(context, work)


async def keep_progress(context: Context, agent_id: UUID, task_id: UUID, body: StoreProgress) -> StoredProgress:
    """Store how far an update of firmware is before it is sent, or its task; return what is stored.

    The first stays: the process that stored it sends the update, and no other. Raises `NotFound`, and `Invalid` for a task of
    another kind.
    """

    async def work(tx: Transaction) -> StoredProgress:
        locked = await _lock(tx, agent_id, task_id, body.lease_fence)
        task = locked.task
        if task.outcome is not None or task.fence != body.fence or not locked.leased:
            return StoredProgress(stored=False)
        if task.kind is not BmcTaskKind.FIRMWARE:
            raise _invalid("progress", "is of a task that updates firmware")
        known = await firmware_updates.read_progress(tx, task_id)
        if body.progress is None:
            return StoredProgress(stored=True, progress=known)
        if known is None:
            known = body.progress
        elif known.sender == body.progress.sender and known.task is None:
            known = known.model_copy(update={"task": body.progress.task})
        await firmware_updates.store_progress(tx, task_id, known)
        return StoredProgress(stored=True, progress=known)

    return await transact(context, work)


async def _require_sealing(tx: Transaction, agent_id: UUID, bmc: Bmc, task_id: UUID, body: StorePassword) -> None:
    # An agent that enrolled again after the task was signed has another key: it could not open a copy for the old one.
    named = await bmc_tasks.signed_recipients(tx, task_id)
    present = await agents.sealing_keys(tx, bmc.site_id)
    allowed = {one for one, key in present.items() if named.get(one) == key.hex()}
    if not is_sealed_enough(body.sealed.keys(), bmc.site_id, agent_id, allowed):
        raise _invalid(
            "sealed", "is for this agent, the recovery key, and agents of the site whose keys the task names"
        )


async def accept_bmc_report(
    context: Context, agent_id: UUID, task_id: UUID, report: BmcTaskReport, request_id: str
) -> BmcTaskAnswer:
    """Record how a task ended, or say why the report does not count. Raises `NotFound`, `Invalid`, `TooLarge`."""
    if len(report.model_dump_json()) > REPORT_BYTES_MAX:
        raise TooLarge(f"a report is at most {REPORT_BYTES_MAX} bytes")

    async def work(tx: Transaction) -> BmcTaskAnswer:
        locked = await _lock(tx, agent_id, task_id, report.lease_fence)
        task = locked.task
        if task.outcome is not None and task.fence == report.fence and task.outcome.value == report.outcome:
            return BmcTaskAnswer(applied=False, reason="already_applied")
        if task.outcome is not None or task.fence != report.fence:
            return BmcTaskAnswer(applied=False, reason="superseded")
        if not locked.leased:
            return BmcTaskAnswer(applied=False, reason="lease_lost")
        await _apply(tx, locked, report)
        failure = None if report.failure is None else f"{report.failure.code}: {report.failure.detail}"
        outcome = report.outcome
        if outcome == "completed" and task.kind in OF_PORTS:
            failure = await unproven(tx, task, await bmc_tasks.signed_ports(tx, task_id), report.ports or [])
            outcome = "completed" if failure is None else "failed"
        await bmc_tasks.end_task(tx, task_id, BmcTaskOutcome(outcome), failure, report.power_state)
        if task.kind is BmcTaskKind.FIRMWARE and report.firmware is not None:
            await firmware_updates.store_result(tx, task_id, report.firmware)
        await emit_reset_ended(tx, task, outcome, failure)
        await note_ended(tx, task, outcome, failure, report.ports)
        said = {
            "task_id": str(task_id), "kind": task.kind.value, "outcome": outcome, "failure": failure,
            "generation": report.generation,
        }  # fmt: skip
        subject = f"nodes/{locked.bmc.node_id}"
        await audit.record(tx, actor_of(agent_id), "node.bmc_task_ended", subject, said, request_id)
        return BmcTaskAnswer(applied=True)

    return await transact(context, work)


async def _apply(tx: Transaction, locked: Locked, report: BmcTaskReport) -> None:
    bmc, kind = locked.bmc, locked.task.kind
    completed = report.outcome == "completed"
    if completed is not (report.failure is None):
        raise _invalid("failure", "is given unless the task completed")
    looked = report.inventory is not None and report.power_state is not None
    if completed and kind in DESCRIBED and not looked:
        raise _invalid("inventory", f"a completed {kind.value} has an inventory and a power state")
    if completed and kind is BmcTaskKind.FIRMWARE and (report.firmware is None or report.firmware.after is None):
        raise _invalid("firmware", "of a completed update has the versions that were read after it")
    if completed and kind in POWERED and report.power_state != POWERED[kind]:
        raise _invalid("power_state", f"a completed task of this kind ends with {POWERED[kind]}")
    if completed and kind is BmcTaskKind.ROTATE and report.generation != bmc.pending_generation:
        raise _invalid("generation", f"a completed rotation is of generation {bmc.pending_generation}")
    if completed and kind in OF_PORTS and not report.ports:
        raise _invalid("ports", f"a completed {kind.value} has the ports that were read")
    if report.generation is not None and report.generation not in (bmc.generation, bmc.pending_generation):
        raise _invalid("generation", "is one that is stored")
    if report.generation is not None and report.generation == bmc.pending_generation:
        await bmcs.promote(tx, bmc.node_id, report.generation)
        await emit_password(tx, bmc.site_id, bmc.node_id, report.generation, given=True)
    if completed and kind in DESCRIBING and report.inventory is not None and report.power_state is not None:
        await bmcs.note_look(tx, bmc.node_id, report.power_state, report.inventory.model_dump(mode="json"))
    elif report.power_state is not None:
        await bmcs.note_power(tx, bmc.node_id, report.power_state)


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(
        f"the report does not fit its task: {field} {message}", errors=[{"field": field, "message": message}]
    )
