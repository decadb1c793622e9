"""Tasks of deploy systems: leased and reported by the deploy system, signed and concluded by the worker."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

import structlog
from pydantic import ValidationError

from berth.process.json_objects import JsonMapping
from node_agent.protocol import RESULT_BYTES_MAX, ResultAnswer, TaskType
from node_agent.wire.attestations import AttestationReport
from node_agent.wire.deploy_enrolment import DeployResultReport, DeployTaskFailure
from node_agent.wire.deploy_tasks import (
    DeployFailureCode,
    MetalDeployParameters,
    MetalDeployReport,
    MetalInspectReport,
    MetalRescueReport,
    MetalWipeParameters,
    MetalWipeReport,
)
from node_agent.wire.fields import first_error
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import agentless_store, store, task_store
from orchestrator.nodes.deploy_systems.metrics import STATEMENTS_DROPPED
from orchestrator.nodes.deploy_systems.queries import counting
from orchestrator.nodes.deploy_systems.refusals import DETAILS
from orchestrator.nodes.deploy_systems.rules import WRITING
from orchestrator.nodes.deploy_systems.store import DeployStanding
from orchestrator.nodes.deploy_systems.task_store import OpenDeployTask, SignedTask
from orchestrator.nodes.deploy_systems.wipe_statements import Objection, SigningMachine
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.inventories import forget_awaited
from orchestrator.nodes.store.slot_service import keep_slots
from orchestrator.nodes.topology.judging import take_inspection
from orchestrator.operations.execution import Context, transact
from orchestrator.problems import Invalid, NotFound, TooLarge
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState
from orchestrator.tasks.store.dispatch import Dispatched

log = structlog.get_logger("orchestrator.deploy_systems")

Report = MetalInspectReport | MetalDeployReport | MetalWipeReport | MetalRescueReport | AttestationReport
REPORTS: Final[dict[TaskType, type[Report]]] = {
    TaskType.METAL_INSPECT: MetalInspectReport,
    TaskType.METAL_DEPLOY: MetalDeployReport,
    TaskType.METAL_WIPE: MetalWipeReport,
    TaskType.METAL_RESCUE: MetalRescueReport,
    TaskType.METAL_ATTEST: AttestationReport,
}


async def lease_deploy_task(
    context: Context, standing: DeployStanding, serial: str, known: Sequence[UUID]
) -> list[Dispatched]:
    """The live task of the deploy system, none if it is in `known`; a lost response loses nothing."""
    async with context.database.autocommit() as tx:
        return await task_store.lease_task(tx, standing.node_id, standing.deploy_epoch, serial, known)


async def accept_deploy_result(
    context: Context, node_id: UUID, deploy_epoch: int, serial: str, task_id: UUID, report: DeployResultReport
) -> ResultAnswer:
    """Record the outcome, or say why it no longer counts. The permission is evaluated under the lock of the node.

    Raises `DeploySystemEnded`, `NotFound` if the task is not this deploy system's, `Invalid` if the report does not fit the
    task, `TooLarge`.
    """
    if len(report.model_dump_json(exclude={"wipe_statement"})) > RESULT_BYTES_MAX:
        raise TooLarge(f"a result is at most {RESULT_BYTES_MAX} bytes")

    async def work(tx: Transaction) -> tuple[ResultAnswer, Objection | None]:
        await nodes.lock_node(tx, node_id)
        counting(await store.read_standing(tx, node_id, deploy_epoch, serial))
        task = await task_store.lock_signed(tx, node_id, deploy_epoch, task_id)
        if task is None:
            raise NotFound(f"this deploy system has no task {task_id}")
        if task.state in (TaskState.COMPLETED, TaskState.FAILED) and task.fence == report.fence:
            return ResultAnswer(applied=False, reason="already_applied"), None
        if task.state not in LIVE_TASK_STATES or task.fence != report.fence:
            return ResultAnswer(applied=False, reason="superseded"), None
        counted, objection = _counted(task, report, SigningMachine(node_id, deploy_epoch, task_id))
        if counted.wipe_statement is not None:
            await store.note_wipe_statement(tx, node_id, deploy_epoch, counted.wipe_statement)
        await task_store.finish(tx, task_id, counted, uuid4())
        return ResultAnswer(applied=True), objection

    answer, objection = await transact(context, work)
    if objection is not None:
        STATEMENTS_DROPPED.labels(objection.reason).inc()
        log.warning(
            "wipe_statement_dropped", node_id=str(node_id), deploy_epoch=deploy_epoch, task_id=str(task_id),
            reason=objection.reason, detail=objection.detail,
        )  # fmt: skip
    return answer


def _counted(
    task: SignedTask, report: DeployResultReport, machine: SigningMachine
) -> tuple[DeployResultReport, Objection | None]:
    """The report as it counts: of the task's type, and about what the task ordered. Raises `Invalid`.

    A wipe that does not prove all that was ordered has failed at once, with its report as evidence: a deploy system that was
    refused would end without another report. A statement that is not that of its report is left out, with the objection to it:
    the wipe is proven without it.
    """
    try:
        if report.result is None:
            if report.evidence is not None and task.type is TaskType.METAL_WIPE:
                MetalWipeReport.model_validate(report.evidence)
            return report, None
        found = REPORTS[task.type].model_validate(report.result)
        objection = _objection(task.parameters, found)
    except ValidationError as error:
        raise _invalid(first_error(error)) from error
    if objection is None:
        dropped = None if report.wipe_statement is None else machine.objection(task, found, report)
        return (report if dropped is None else report.model_copy(update={"wipe_statement": None})), dropped
    if task.type is not TaskType.METAL_WIPE:
        raise _invalid(objection)
    failure = DeployTaskFailure(code=DeployFailureCode.WIPE_NOT_PROVEN, detail=objection)
    failed = DeployResultReport(fence=report.fence, outcome="failed", failure=failure, evidence=report.result)
    return failed, None


def _objection(parameters: JsonMapping, found: Report) -> str | None:
    """Why the report does not show that what was ordered is done."""
    if isinstance(found, MetalWipeReport):
        ordered = MetalWipeParameters.model_validate(parameters)
        if {(disk.serial, disk.size_bytes) for disk in ordered.disks} != {
            (disk.serial, disk.size_bytes) for disk in found.disks
        }:
            return "disks: are not those of the task"
        if not all(disk.proven for disk in found.disks) or found.storage_without_driver or found.variables_remaining:
            return "disks: a completed wipe has read every disk back as zeroes, and nothing remains"
        return "tpm: was not cleared" if ordered.clear_tpm and found.tpm not in ("cleared", "absent") else None
    if isinstance(found, MetalDeployReport):
        wanted = MetalDeployParameters.model_validate(parameters)
        if found.root_disk != wanted.root_disk or found.image_sha256 != wanted.image.sha256:
            return "root_disk, image_sha256: are not those of the task"
    return None


def _invalid(message: str) -> Invalid:
    return Invalid("the report does not fit its task", errors=[{"field": "result", "message": message}])


class Advanced(StrEnum):
    """What became of an open task of a deploy system."""

    ISSUED = "issued"
    COMPLETED = "completed"
    FAILED = "failed"
    NOT_RUN = "not_run"


async def advance_deploy_task(context: Context, node_id: UUID) -> Advanced | None:
    """Sign the requested task of a deploy system that has said hello, or conclude the one that is over, under the node's lock.

    None: there is nothing to do yet. A task that writes is signed only while its claim is the only one on the node.
    """

    async def work(tx: Transaction) -> Advanced | None:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        await nodes.lock_node(tx, node_id)
        known = await task_store.read_open(tx, node_id)
        if known is None:
            return None
        if known.task_id is not None:
            return await _conclude(tx, node_id, known)
        use = await store.read_use(tx, node_id, known.claim_id)
        obstacle = use.obstacle(writing=known.type in WRITING)
        if obstacle is not None:
            return await _end_unrun(tx, node_id, known, f"{obstacle}: {DETAILS[obstacle]}")
        if known.is_over:
            return await _end_unrun(tx, node_id, known, "expired: the certificate of the deploy system is over")
        if known.is_started:
            await task_store.issue(tx, context.signer, node_id, use.epoch, known)
            return Advanced.ISSUED
        if known.waits_until <= known.clock:
            return await _end_unrun(tx, node_id, known, "not_started: the deploy system said no hello in time")
        return None

    return await transact(context, work)


async def _end_unrun(tx: Transaction, node_id: UUID, known: OpenDeployTask, why: str) -> Advanced:
    await task_store.end(tx, node_id, known.id, Advanced.NOT_RUN.value, why, None)
    return Advanced.NOT_RUN


async def _conclude(tx: Transaction, node_id: UUID, known: OpenDeployTask) -> Advanced | None:
    if known.task_state in LIVE_TASK_STATES:
        return None
    if known.task_state is not TaskState.COMPLETED:
        await task_store.end(tx, node_id, known.id, Advanced.FAILED.value, known.task_failure, known.result)
        return Advanced.FAILED
    if known.type is TaskType.METAL_INSPECT:
        assert known.task_id is not None, "it was signed"
        await _take_inspection(tx, node_id, known.task_id, MetalInspectReport.model_validate(known.result))
    elif known.type is TaskType.METAL_WIPE:
        await _take_wipe(tx, node_id)
    await task_store.end(tx, node_id, known.id, Advanced.COMPLETED.value, None, known.result)
    return Advanced.COMPLETED


async def _take_inspection(tx: Transaction, node_id: UUID, task_id: UUID, report: MetalInspectReport) -> None:
    """Record the machine. Of a node without an agent it is the discovery."""
    await store.record_machine(tx, node_id, report)
    await agentless_store.note_machine_without_agent(tx, node_id)
    node = await agentless_store.read_agentless(tx, node_id)
    if node is not None:
        await take_inspection(tx, node_id, node, task_id, report.topology)


async def _take_wipe(tx: Transaction, node_id: UUID) -> None:
    """A node without an agent sends no inventory after a restore: a wipe alone proves that nothing is left on its machine."""
    if await agentless_store.read_agentless(tx, node_id) is not None:
        await forget_awaited(tx, node_id)
        await keep_slots(tx, node_id)
