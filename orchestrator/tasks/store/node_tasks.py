"""SQL of tasks about a node as such: discovery, health probes and burn-ins. They concern no allocation."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from pydantic import BaseModel

from node_agent.protocol import TaskBody, TaskType
from orchestrator.database.transactions import Transaction
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.store.tasks import NOT_BEFORE_ALLOWANCE_SECONDS

_DELETE = "delete from node_tasks where id = :id and state not in ('queued', 'dispatched')"
_INSERT = """
insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at)
values (:id, :node_id, :node_epoch, :type, :fence, cast(:envelope as jsonb), :not_before, :expires_at)
"""


async def issue_node_task(
    tx: Transaction,
    signer: TaskSigner,
    task_type: TaskType,
    node_id: UUID,
    epoch: int,
    *,
    clock: datetime,
    seconds_max: float,
    previous_task: UUID | None,
    parameters: BaseModel | None = None,
) -> TaskBody:
    """Sign and queue a task that the node has `seconds_max` for, and delete the one before it, which has ended.

    The caller holds the node's lock; `clock` was read after it.
    """
    fence: int = (await tx.execute("select nextval('fences')")).scalar_one()
    body = TaskBody(
        task_id=uuid4(), type=task_type, node_id=node_id, node_epoch=epoch, allocation_id=None, fence=fence,
        parameters={} if parameters is None else parameters.model_dump(mode="json"),
        not_before=clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=clock + timedelta(seconds=seconds_max), key_id=signer.key_id,
    )  # fmt: skip
    await tx.execute(_DELETE, {"id": previous_task})
    values = {
        "id": body.task_id, "node_id": node_id, "node_epoch": epoch, "type": task_type.value, "fence": fence,
        "envelope": signer.sign(body).model_dump_json(), "not_before": body.not_before, "expires_at": body.expires_at,
    }  # fmt: skip
    await tx.execute(_INSERT, values)
    return body
