"""SQL that locks an allocation, and the only function that changes its state (DESIGN §4, §5).

Lock order: node row, allocation row, claim; quota last. The transaction that reads a `Subject` holds the first three locks, so
that its values cannot change, except that the node may lease a queued task.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.allocations.failures import next_step_of
from orchestrator.allocations.states import FINAL_STATES, AllocationState, allowed
from orchestrator.allocations.subject import LatestTask, Subject
from orchestrator.allocations.waits import Wait
from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import EventType
from orchestrator.problems import InvalidState
from orchestrator.tasks.states import TaskState
from orchestrator.tenants.principals import Actor

_LOCK_NODE = """
select id from nodes
where id = (select node_id from allocations
            where id = :allocation_id and (cast(:tenant_id as uuid) is null or tenant_id = :tenant_id))
for no key update
"""
_LOCK_ALLOCATION = """
select a.id, a.tenant_id, a.node_id, a.claim_id, a.state, a.row_version, a.sku, a.shape, a.gpus, a.region,
       a.price_version, a.correlation_id, a.requested_at, a.active_at, a.releasing_at, a.ends_at, a.reservation_id,
       a.waits_for, a.waits_until,
       coalesce(a.provision_until, a.waits_until) as provision_until, a.release_attempts,
       a.guest_state, a.guest_verb, a.health, n.online as node_online,
       coalesce(c.inherited_fence, c.fence) as fence, c.closed_at is not null as claim_closed, c.waits_for as claim_waits_for,
       c.waits_until as claim_waits_until, clock_timestamp() as clock,
       t.id as task_id, t.type as task_type, t.state as task_state, t.fence as task_fence, t.notify as task_notify,
       t.attempt as task_attempt, t.expires_at as task_expires_at, t.result as task_result,
       t.failure_code as task_failure_code, t.failure_detail as task_failure_detail
from allocations a
join claims c on c.id = a.claim_id
join nodes n on n.id = a.node_id
left join lateral (select * from node_tasks where allocation_id = a.id order by fence desc limit 1) t on true
where a.id = :allocation_id and a.node_id = :node_id
for no key update of a, c
"""


async def lock_allocation(tx: Transaction, allocation_id: UUID, tenant_id: UUID | None = None) -> Subject | None:
    """Lock node, allocation and claim, in that order. None if there is no such allocation (of that tenant, if given)."""
    node = (await tx.execute(_LOCK_NODE, {"allocation_id": allocation_id, "tenant_id": tenant_id})).first()
    if node is None:
        return None
    row = (await tx.execute(_LOCK_ALLOCATION, {"allocation_id": allocation_id, "node_id": node.id})).first()
    if row is None:
        raise TransactionConflict("the allocation moved to another node meanwhile")
    values = dict(row._mapping)
    task = {key.removeprefix("task_"): values.pop(key) for key in list(values) if key.startswith("task_")}
    values["state"] = AllocationState(values["state"])
    values["shape"] = Shape(values["shape"])
    values["waits_for"] = Wait(values["waits_for"]) if values["waits_for"] else None
    values["claim_waits_for"] = Wait(values["claim_waits_for"]) if values["claim_waits_for"] else None
    if task["id"] is not None:
        task["state"] = TaskState(task["state"])
    return Subject(**values, task=None if task["id"] is None else LatestTask(**task))


@dataclass(frozen=True, slots=True)
class Change:
    """A transition: the new state, its event, and the next wait.

    `code` and `detail` describe a failure; its event then contains the next step too. `fence` is the claim's newest.
    `wait_seconds` count from the subject's clock, as those of its task do, so that the published deadline is the one that is
    enforced; None means no deadline.
    """

    to_state: AllocationState
    fence: int
    event: EventType | None = None
    payload: JsonObject | None = None
    waits_for: Wait | None = None
    wait_seconds: float | None = None
    code: str | None = None
    detail: str | None = None
    connection: JsonObject | None = None
    release_result: JsonObject | None = None
    operation_key: str | None = None
    request_id: str | None = None


# One statement, so that state, timeline and event change together; the clock is read once, after the locks.
_ADVANCE = """
with at as materialized (select clock_timestamp() as now),
deadline as (select cast(:clock as timestamptz) + make_interval(secs => cast(:wait_seconds as float8)) as at),
moved as (
    update allocations a set
        state = :to_state,
        row_version = a.row_version + 1,
        active_at = case when :to_state = 'active' then at.now else a.active_at end,
        releasing_at = case when :to_state = 'releasing' then coalesce(a.releasing_at, at.now) else a.releasing_at end,
        released_at = case when :to_state = 'released' then at.now end,
        release_failed_at = case when :to_state = 'release_failed' then at.now else a.release_failed_at end,
        failed_at = case when :to_state = 'failed' then at.now end,
        failure_code = :code,
        failure_detail = :detail,
        connection = coalesce(cast(:connection as jsonb), a.connection),
        release_result = coalesce(cast(:release_result as jsonb), a.release_result),
        release_attempts = case when :to_state = 'releasing' then 0 else a.release_attempts end,
        guest_state = case when :to_state = 'active' then 'running' end,
        guest_verb = null,
        rescue = null,
        guest_failure_code = null,
        guest_failure_detail = null,
        health = null,
        health_cause = null,
        health_since = null,
        proof_of_life_at = null,
        lost_at = null,
        health_until = null,
        first_boot = null,
        first_boot_detail = null,
        first_boot_since = null,
        provision_until = case when :to_state = 'provisioning' then deadline.at else a.provision_until end,
        waits_for = :waits_for,
        waits_since = case when cast(:waits_for as text) is not null then at.now end,
        waits_until = deadline.at
    from at, deadline
    where a.id = :id and a.state = :from_state and a.row_version = :row_version
    returning a.id, a.row_version, a.tenant_id, a.correlation_id,
              case when old.state = 'active' then old.proof_of_life_at end as proof_of_life_at,
              old.health_since, old.health_cause, old.lost_at,
              case cast(:to_state as text) when 'releasing' then a.releasing_at else at.now end as since
), noted as (
    insert into allocation_timeline
        (allocation_id, at, kind, from_state, to_state, row_version, code, detail, actor_kind, actor_id, fence)
    select m.id, at.now, 'transition', :from_state, :to_state, m.row_version, :code, :detail, :actor_kind, :actor_id,
           :fence
    from moved m, at
), sent as (
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select cast(:event_type as text), at.now, m.correlation_id, m.tenant_id, 'allocations/' || m.id, :operation_key, :request_id,
           cast(:payload as jsonb) || jsonb_build_object(
               cast(:to_state as text) || '_at', rfc3339(m.since))
           || case when m.proof_of_life_at is null then '{}' else jsonb_build_object(
               'last_proof_of_life_at', rfc3339(m.proof_of_life_at), 'outage_since', rfc3339(m.health_since),
               'outage_cause', m.health_cause, 'outage_lost_at', rfc3339(m.lost_at)) end
    from moved m, at
    where cast(:event_type as text) is not null
    returning event_id
)
select row_version, (select event_id from sent) as event_id from moved
"""
_RETURN_QUOTA = """
update tenant_quotas set gpus_used = gpus_used - :gpus, row_version = row_version + 1 where tenant_id = :tenant_id
"""


async def advance_if(tx: Transaction, subject: Subject, change: Change, actor: Actor) -> int:
    """Change the state of a locked allocation; return its new row version.

    State, its time (`releasing_at` only once: metered time never reopens), timeline and event change together or not at all.
    A final state returns the tenant's quota, which is locked here, so call this last.
    Raises `InvalidState` if the actor may not make this transition, `TransactionConflict` if the row changed.
    """
    if not allowed(subject.state, change.to_state, actor.kind):
        raise InvalidState(
            f"the allocation is {subject.state}; {actor.kind} cannot make it {change.to_state}",
            state=subject.state,
        )
    moved = await tx.execute(
        _ADVANCE,
        {
            "id": subject.id,
            "from_state": subject.state.value,
            "row_version": subject.row_version,
            "to_state": change.to_state.value,
            "code": change.code,
            "detail": change.detail,
            "connection": _json_or_null(change.connection),
            "release_result": _json_or_null(change.release_result),
            "waits_for": change.waits_for,
            "wait_seconds": change.wait_seconds,
            "clock": subject.clock,
            "actor_kind": actor.kind.value,
            "actor_id": actor.id,
            "fence": change.fence,
            "event_type": change.event,
            "operation_key": change.operation_key,
            "request_id": change.request_id,
            "payload": json.dumps(
                {"allocation_id": subject.id, **_failure(change), **(change.payload or {}), "fence": change.fence},
                default=str,
            ),
        },
    )
    row = moved.first()
    if row is None:
        raise TransactionConflict("the allocation changed although it was locked")
    if change.event is not None and change.operation_key is not None:
        tx.operation_event = row.event_id
    if change.to_state in FINAL_STATES:
        await tx.execute(_RETURN_QUOTA, {"gpus": subject.gpus, "tenant_id": subject.tenant_id})
    row_version: int = row.row_version
    return row_version


def _failure(change: Change) -> dict[str, str | None]:
    if change.code is None:
        return {}
    return {"code": change.code, "detail": change.detail, "next_step": next_step_of(change.code)}


def _json_or_null(value: JsonObject | None) -> str | None:
    return None if value is None else json.dumps(value)
