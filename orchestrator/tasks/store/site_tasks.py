"""SQL of the tasks of allocations that the site of a node performs, by a run of a deploy system on the node's machine.

Their `deploy_epoch` is 0: no agent of a node and no deploy system leases them. The caller holds the lock of the node's row.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.protocol import Envelope, TaskBody, TaskType
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState
from orchestrator.tasks.store.results import finish_with

PROVISION_SECONDS_MAX: Final = 86_400.0
"""Longer than the end of another run and a run that deploys can take."""
RELEASE_SECONDS_MAX: Final = 691_200.0
"""The same, with a run that wipes."""
SWITCH_SECONDS_MAX: Final = 14_400.0
"""Longer than the end of another task about the BMC and a run that switches can take."""

_IS_OF_SITE = """
select n.shape = 'baremetal' and (
    exists (select from node_tasks t where t.allocation_id = :allocation_id and t.deploy_epoch = 0)
    or exists (select from allocations a where a.id = :allocation_id and a.adoption is not null)
    or n.enrolled_at is null and exists (select from node_bmcs b where b.node_id = n.id)
       and not exists (select from node_tasks t where t.allocation_id = :allocation_id and t.deploy_epoch is null
                       and t.type = 'allocation.provision_user'))
from nodes n where n.id = :node_id
"""
_WAS_DEPLOYED = """
select exists (select from node_tasks where allocation_id = :id and deploy_epoch = 0)
    or exists (select from allocations where id = :id and adoption is not null)
"""
# A task whose machine was inspected for it waits for the run that performs it.
# After a restore nothing is known about the machine: its run begins by an operator's word alone.
_FIND_WAITING = """
select t.node_id from node_tasks t
where t.deploy_epoch = 0 and t.state in ('queued', 'dispatched')
  and not exists (select from awaited_inventories w where w.node_id = t.node_id)
  and not exists (select from deploy_runs r where r.node_id = t.node_id and (
      r.ended_at is null or r.task_id = t.id and not (r.kind = 'inspect' and r.outcome = 'completed')))
  and not exists (select from bmc_tasks b where b.node_id = t.node_id and b.ended_at is null)
  and not exists (select from deploy_tasks d where d.node_id = t.node_id and d.ended_at is null)
order by t.queued_at, t.id limit :limit
"""
_READ_WAITING = """
select t.id, t.type, t.allocation_id, t.envelope, a.claim_id
from node_tasks t join allocations a on a.id = t.allocation_id
where t.node_id = :node_id and t.deploy_epoch = 0 and t.state in ('queued', 'dispatched')
  and not exists (select from deploy_runs r where r.node_id = t.node_id and (
      r.ended_at is null or r.task_id = t.id and not (r.kind = 'inspect' and r.outcome = 'completed')))
  and not exists (select from bmc_tasks b where b.node_id = t.node_id and b.ended_at is null)
  and not exists (select from deploy_tasks d where d.node_id = t.node_id and d.ended_at is null)
"""
_TYPE = "select type from node_tasks where id = :id"
_CONNECTION = "select connection from allocations where id = :id"
# A key that the tenant has removed opens nothing, although the allocation was created with it.
_LOGIN_KEYS = """
select distinct k.public_key from allocations a
join ssh_keys k on k.tenant_id = a.tenant_id and k.public_key = any (a.ssh_public_keys)
where a.id = :id order by k.public_key
"""
_READ_OPEN = """
select t.state, a.correlation_id from node_tasks t join allocations a on a.id = t.allocation_id
where t.id = :id for no key update of t
"""


@dataclass(frozen=True, slots=True)
class SiteTask:
    """A live task of an allocation that no run performs yet."""

    id: UUID
    type: TaskType
    allocation_id: UUID
    claim_id: int
    parameters: JsonObject


async def is_of_site(reading: Reading, allocation_id: UUID, node_id: UUID) -> bool:
    """Whether the site of the node performs the allocation's tasks: it has performed one, or the machine was adopted, or the node
    has a BMC and no agent."""
    row = await reading.execute(_IS_OF_SITE, {"allocation_id": allocation_id, "node_id": node_id})
    return bool(row.scalar_one())


async def is_deployed_by_site(reading: Reading, allocation_id: UUID) -> bool:
    """Whether a site has performed a task of the allocation, or its machine was adopted, so that no agent knows it."""
    return bool((await reading.execute(_WAS_DEPLOYED, {"id": allocation_id})).scalar_one())


async def find_waiting(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with a task that waits for its run, while nothing else works on the machine: the longest waiting first.

    Without those that are awaited after a restore: their tasks wait for an operator.
    """
    return list((await reading.execute(_FIND_WAITING, {"limit": limit})).scalars())


async def read_waiting(tx: Transaction, node_id: UUID) -> SiteTask | None:
    """The task of the locked node that waits for its run; None while anything works on the machine."""
    row = (await tx.execute(_READ_WAITING, {"node_id": node_id})).first()
    if row is None:
        return None
    body = TaskBody.model_validate_json(base64.b64decode(Envelope.model_validate(row.envelope).payload))
    return SiteTask(row.id, TaskType(row.type), row.allocation_id, row.claim_id, body.parameters)


def verb_seconds_max(verb: TaskType) -> float:
    """How long a verb that the site performs may take."""
    return PROVISION_SECONDS_MAX if verb in (TaskType.REBUILD, TaskType.RESCUE) else SWITCH_SECONDS_MAX


async def read_connection(tx: Transaction, allocation_id: UUID) -> JsonObject:
    """How the tenant reaches an allocation that was deployed."""
    connection: JsonObject = (await tx.execute(_CONNECTION, {"id": allocation_id})).scalar_one()
    return connection


async def is_release(tx: Transaction, task_id: UUID) -> bool:
    """Whether the task is that of a release. A task that is gone is none."""
    return (await tx.execute(_TYPE, {"id": task_id})).scalar() == TaskType.DEPROVISION_USER


async def read_login_keys(tx: Transaction, allocation_id: UUID) -> list[str]:
    """The public keys that the allocation was created with, without those that its tenant has removed since."""
    return list((await tx.execute(_LOGIN_KEYS, {"id": allocation_id})).scalars())


async def finish_if_live(
    tx: Transaction, task_id: UUID, result: JsonObject | None, failure: tuple[str, str] | None
) -> bool:
    """End the task with its result, or with code and detail of a failure; its event wakes the workflow.

    False if it does not count any more: the allocation has gone on without it.
    """
    row = (await tx.execute(_READ_OPEN, {"id": task_id})).first()
    if row is None or TaskState(row.state) not in LIVE_TASK_STATES:
        return False
    code, detail = failure or (None, None)
    state = TaskState.COMPLETED if failure is None else TaskState.FAILED
    written = None if result is None else json.dumps(result)
    await finish_with(tx, task_id, state, written, code, detail, row.correlation_id)
    return True
