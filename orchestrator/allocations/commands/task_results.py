"""A node reports how its task ended. Only the newest fence's live task counts; late reports change nothing (P7, P8)."""

from __future__ import annotations

from uuid import UUID, uuid4

from pydantic import ValidationError

from berth.process.json_objects import JsonMapping
from node_agent.protocol import (
    PROVISIONS,
    RELEASES,
    RESULT_BYTES_MAX,
    VERBS,
    ProgressReport,
    ProvisionResult,
    ReleaseResult,
    ResultAnswer,
    ResultReport,
    TaskType,
    VerbResult,
)
from node_agent.wiping.statement import StatementEnvelope, StatementRejected, open_statement
from node_agent.wire.devices import EVIDENCE, devices_in
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.timeline import note, record_progress_if_live
from orchestrator.allocations.subject import Subject
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.problems import Invalid, NotFound, TooLarge
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState
from orchestrator.tasks.store.expiry import expire_if_overdue, find_allocation_of_task
from orchestrator.tasks.store.results import TaskOfNode, TaskStanding, find_task_of_node, finish_task, lock_task
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.wipes.certificate import repeats_result
from orchestrator.wipes.store import is_known_certificate

CODE_LATE = "late_result"
_STATEMENT = "result.wipe_statement"


async def accept_task_result(
    context: Context, node_id: UUID, node_epoch: int, task_id: UUID, report: ResultReport
) -> ResultAnswer:
    """Record the outcome, or say why it no longer counts. `node_id` and `node_epoch` are those of the certificate.

    Raises `NotFound` if the task is not that node's, `Invalid` if the report does not fit the task's type, `TooLarge`.
    """
    return await transact(context, lambda tx: _accept(tx, node_id, node_epoch, task_id, report))


async def _accept(tx: Transaction, node_id: UUID, node_epoch: int, task_id: UUID, report: ResultReport) -> ResultAnswer:
    task = await find_task_of_node(tx, task_id, node_id)
    if task is None:
        raise NotFound(f"this node has no task {task_id}")
    _require_fitting(task, report)
    await _require_own_statement(tx, task, node_id, task_id, report)
    subject = None if task.allocation_id is None else await lock_allocation(tx, task.allocation_id)
    standing = await lock_task(tx, task_id)
    if standing.state in (TaskState.COMPLETED, TaskState.FAILED) and standing.fence == report.fence:
        return ResultAnswer(applied=False, reason="already_applied")
    if not _counts(standing, subject, node_epoch, report):
        if subject is not None:
            node = Actor(ActorKind.NODE, str(node_id))
            detail = f"the node reported {report.outcome}; another fence holds the units"
            await note(tx, subject.id, node, CODE_LATE, detail, standing.fence, once=True)
        return ResultAnswer(applied=False, reason="superseded")
    await finish_task(tx, task_id, report, uuid4() if subject is None else subject.correlation_id)
    return ResultAnswer(applied=True)


def _counts(standing: TaskStanding, subject: Subject | None, node_epoch: int, report: ResultReport) -> bool:
    newest = subject is None or subject.fence == standing.fence
    same_node = standing.node_epoch == node_epoch
    return newest and same_node and report.fence == standing.fence and standing.state in LIVE_TASK_STATES


def _require_fitting(task: TaskOfNode, report: ResultReport) -> None:
    """A completed report carries a result of the task's type and no failure; a failed one the other way round."""
    if (report.outcome == "completed") != (report.result is not None) or (report.result is None) != (
        report.failure is not None
    ):
        raise _invalid("result", "exactly one of result and failure is given, the one that fits the outcome")
    if report.result is None:
        return
    if len(report.model_dump_json()) > RESULT_BYTES_MAX:
        raise TooLarge(f"a result is at most {RESULT_BYTES_MAX} bytes")
    try:
        if task.type in PROVISIONS:
            _require_devices(ProvisionResult.model_validate(report.result).evidence)
        elif task.type in RELEASES:
            proof = ReleaseResult.model_validate(report.result)
            if proof.released and not (proof.wiped and proof.leases_released):
                raise _invalid("result.released", "released only if wiped and leases_released")
        elif task.type in VERBS:
            after = VerbResult.model_validate(report.result)
            if (after.connection is None) != (task.type is TaskType.STOP):
                raise _invalid("result.connection", "given unless the verb is stop")
            _require_devices(after.evidence)
    except ValidationError as error:
        first = error.errors()[0]
        raise _invalid(".".join(["result", *map(str, first["loc"])]), first["msg"]) from error


def _require_devices(evidence: JsonMapping) -> None:
    """Require that the devices in the evidence are valid. Agents of the version before send none."""
    try:
        devices_in(evidence)
    except ValidationError as error:
        first = error.errors()[0]
        raise _invalid(".".join(["result.evidence", EVIDENCE, *map(str, first["loc"])]), first["msg"]) from error


async def _require_own_statement(
    tx: Transaction, task: TaskOfNode, node_id: UUID, task_id: UUID, report: ResultReport
) -> None:
    """Require that the wipe statement of a release, if there is one, repeats the report in the node's own signature."""
    result = report.result
    if task.type not in RELEASES or result is None or result.get("wipe_statement") is None:
        return
    try:
        opened = open_statement(StatementEnvelope.model_validate(result["wipe_statement"]))
    except ValidationError as error:
        first = error.errors()[0]
        raise _invalid(".".join([_STATEMENT, *map(str, first["loc"])]), first["msg"]) from error
    except StatementRejected as rejected:
        raise _invalid(_STATEMENT, rejected.detail) from rejected
    found = opened.predicate
    if (found.node_id, found.task_id, found.fence) != (node_id, task_id, report.fence):
        raise _invalid(_STATEMENT, "is about another node, task or fence")
    if task.allocation_id is not None and found.allocation_id != task.allocation_id:
        raise _invalid(_STATEMENT, "is about another allocation")
    if not repeats_result(opened.statement, result):
        raise _invalid(_STATEMENT, "does not repeat the result")
    if not await is_known_certificate(tx, node_id, opened.certificate.serial_number):
        raise _invalid(_STATEMENT, "is signed with a certificate that the node does not have or that is revoked")


def _invalid(field: str, message: str) -> Invalid:
    return Invalid("the report does not fit its task", errors=[{"field": field, "message": message}])


async def record_task_progress(context: Context, node_id: UUID, task_id: UUID, report: ProgressReport) -> bool:
    """Write phases into the timeline; False if the task is superseded or has reported 64 phases.

    Raises `NotFound` if the task is not that node's.
    """

    async with context.database.autocommit() as tx:
        if await record_progress_if_live(tx, task_id, node_id, report.fence, report.phases):
            return True
    async with context.database.read_one() as reading:
        if await find_task_of_node(reading, task_id, node_id) is None:
            raise NotFound(f"this node has no task {task_id}")
    return False


async def expire_task(context: Context, task_id: UUID) -> bool:
    """Expire it if it is live still and overdue, judged after the locks; whether it was. Its event wakes the workflow."""

    async def work(tx: Transaction) -> bool:
        allocation_id = await find_allocation_of_task(tx, task_id)
        subject = None if allocation_id is None else await lock_allocation(tx, allocation_id)
        return await expire_if_overdue(tx, task_id, uuid4() if subject is None else subject.correlation_id)

    return await transact(context, work)
