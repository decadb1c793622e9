"""SQL of the tasks of sites about BMCs. Every change but a lease of an agent holds the lock of the BMC's row."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.protocol import Envelope, TaskBody
from node_agent.wire.sites import BmcTaskKind, BmcTaskParameters
from node_agent.wire.switches import PortOrder
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.sites.rules import REPORT_GRACE_SECONDS, TYPES, WAITS_FOR_AGENT, WAITS_FOR_LEASE
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.store.tasks import NOT_BEFORE_ALLOWANCE_SECONDS


@dataclass(frozen=True, slots=True)
class BmcTask:
    """A task as operators see it. `outcome` is None while it is open."""

    id: UUID
    node_id: UUID
    site_id: UUID
    kind: BmcTaskKind
    requested_at: datetime
    requested_by: str
    fence: int | None
    issued_at: datetime | None
    dispatched_at: datetime | None
    lease_fence: int | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    ended_at: datetime | None
    outcome: BmcTaskOutcome | None
    failure: str | None
    power_state: str | None


@dataclass(frozen=True, slots=True)
class Leased:
    """A task on its way to an agent."""

    task_id: UUID
    envelope: JsonObject


_READ = """
select t.id, t.node_id, t.site_id, t.kind, t.requested_at, t.requested_by, t.fence, t.issued_at, t.dispatched_at, t.lease_fence,
       t.waits_for, t.waits_since, t.waits_until, t.ended_at, t.outcome, t.failure, t.power_state
from bmc_tasks t
 where t.id = :id
"""
_LOCK = """
select t.id, t.node_id, t.site_id, t.kind, t.requested_at, t.requested_by, t.fence, t.issued_at, t.dispatched_at, t.lease_fence,
       t.waits_for, t.waits_since, t.waits_until, t.ended_at, t.outcome, t.failure, t.power_state
from bmc_tasks t
 where t.id = :id for no key update
"""
_OPEN = """
select t.id, t.node_id, t.site_id, t.kind, t.requested_at, t.requested_by, t.fence, t.issued_at, t.dispatched_at, t.lease_fence,
       t.waits_for, t.waits_since, t.waits_until, t.ended_at, t.outcome, t.failure, t.power_state
from bmc_tasks t
 where t.node_id = :node_id and t.ended_at is null for no key update
"""
_NEWEST = """
select newest.* from unnest(cast(:nodes as uuid[])) wanted(node_id),
    lateral (
select t.id, t.node_id, t.site_id, t.kind, t.requested_at, t.requested_by, t.fence, t.issued_at, t.dispatched_at, t.lease_fence,
       t.waits_for, t.waits_since, t.waits_until, t.ended_at, t.outcome, t.failure, t.power_state
from bmc_tasks t
 where t.node_id = wanted.node_id order by t.requested_at desc limit 1) newest
"""
_REQUEST = """
insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until)
values (:node_id, :site_id, :kind, :by, :waits_for, clock_timestamp(),
        clock_timestamp() + make_interval(secs => :seconds_max))
returning id
"""
_FORGET = """
delete from bmc_tasks where node_id = :node_id and ended_at is not null
    and id <> (select id from bmc_tasks where node_id = :node_id and ended_at is not null order by requested_at desc limit 1)
"""
_READY = """
select t.id from bmc_tasks t join sites s on s.id = t.site_id
where t.ended_at is null and t.issued_at is null and s.lease_until > clock_timestamp() order by t.requested_at, t.id limit :limit
"""
_OVERDUE = """
select id from bmc_tasks where ended_at is null and waits_until < (select clock_timestamp()) order by waits_until, id limit :limit
"""
_FENCE = "select nextval('fences') as fence, n.epoch from nodes n where n.id = :node_id"
_ISSUE = """
update bmc_tasks set fence = :fence, envelope = cast(:envelope as jsonb), issued_at = :clock, waits_for = :waits_for,
    waits_since = :clock, waits_until = :waits_until
where id = :id and issued_at is null and ended_at is null
"""
_ENVELOPE = "select envelope from bmc_tasks where id = :id"
_END_OPEN = """
update bmc_tasks set outcome = case when issued_at is null then 'failed' else 'unknown' end, failure = :failure,
    ended_at = clock_timestamp(), waits_for = null, waits_since = null, waits_until = null
where node_id = :node_id and ended_at is null
"""
_END = """
update bmc_tasks set outcome = :outcome, failure = :failure, power_state = :power_state, ended_at = clock_timestamp(),
    waits_for = null, waits_since = null, waits_until = null
where id = :id and ended_at is null
"""
# The lease and the certificate count in the same statement, so an agent that lost either a moment ago gets nothing.
_LEASE = """
with held as (
    select s.id, s.lease_fence from site_agents a join sites s on s.id = a.site_id
    join site_agent_certificates c on c.serial = :serial and c.agent_id = a.id and c.revoked_at is null
        and c.agent_epoch = a.epoch
    where a.id = :agent_id and a.state <> 'retired' and a.identity_conflict_at is null
      and s.lease_agent = a.id and s.lease_run = :run_id and s.lease_fence = :lease_fence and s.lease_until > clock_timestamp()
    for share of s
), others as (
    select t.id from held h join bmc_tasks t on t.site_id = h.id
    where t.ended_at is null and t.issued_at is not null and t.waits_until > clock_timestamp() + make_interval(secs => :grace)
      and t.id <> all (cast(:known as uuid[])) and (t.kind <> 'reach' or cast(:reach_limit as integer) is null)
    order by t.issued_at, t.id limit :limit for update of t skip locked
), reaching as (
    select t.id from held h join bmc_tasks t on t.site_id = h.id
    where t.ended_at is null and t.issued_at is not null and t.waits_until > clock_timestamp() + make_interval(secs => :grace)
      and t.id <> all (cast(:known as uuid[])) and t.kind = 'reach' and cast(:reach_limit as integer) > 0
    order by t.issued_at, t.id limit coalesce(cast(:reach_limit as integer), 0) for update of t skip locked
), picked as (
    select id from others union all select id from reaching
), leased as (
    update bmc_tasks t set dispatched_at = clock_timestamp(), lease_fence = h.lease_fence, dispatch_count = t.dispatch_count + 1
    from picked p, held h where t.id = p.id
    returning t.id, t.envelope
)
select exists (select from held) as held, l.id, l.envelope from (select) one left join leased l on true
"""


def _task(row: Any) -> BmcTask:
    columns = dict(row._mapping)
    outcome = columns["outcome"]
    return BmcTask(
        **{
            **columns, "kind": BmcTaskKind(columns["kind"]),
            "outcome": None if outcome is None else BmcTaskOutcome(outcome),
        }
    )  # fmt: skip


async def read_task(reading: Reading, task_id: UUID) -> BmcTask | None:
    """The task, before its locks are taken."""
    row = (await reading.execute(_READ, {"id": task_id})).first()
    return None if row is None else _task(row)


async def lock_task(tx: Transaction, task_id: UUID) -> BmcTask | None:
    """The task, locked after its BMC; None if it was deleted with its BMC."""
    row = (await tx.execute(_LOCK, {"id": task_id})).first()
    return None if row is None else _task(row)


async def lock_open(tx: Transaction, node_id: UUID) -> BmcTask | None:
    """The open task of a locked BMC, locked."""
    row = (await tx.execute(_OPEN, {"node_id": node_id})).first()
    return None if row is None else _task(row)


async def newest_tasks(reading: Reading, nodes: Sequence[UUID]) -> dict[UUID, BmcTask]:
    """The newest task of each of these nodes that has one."""
    return {row.node_id: _task(row) for row in await reading.execute(_NEWEST, {"nodes": list(nodes)})}


async def request_task(
    tx: Transaction, node_id: UUID, site_id: UUID, kind: BmcTaskKind, by: str, seconds_max: float
) -> BmcTask:
    """A task of a locked BMC without an open one, which the worker signs. Of the ended ones the newest alone stays."""
    await tx.execute(_FORGET, {"node_id": node_id})
    values = {
        "node_id": node_id, "site_id": site_id, "kind": kind.value, "by": by, "waits_for": WAITS_FOR_LEASE,
        "seconds_max": seconds_max,
    }  # fmt: skip
    made: UUID = (await tx.execute(_REQUEST, values)).scalar_one()
    found = await read_task(tx, made)
    assert found is not None, "what was inserted can be read"
    return found


async def find_ready(reading: Reading, limit: int) -> list[UUID]:
    """Requested tasks of sites whose lease is held, the oldest first."""
    return list((await reading.execute(_READY, {"limit": limit})).scalars())


async def find_overdue(reading: Reading, limit: int) -> list[UUID]:
    """Open tasks whose wait is over, the earliest first."""
    return list((await reading.execute(_OVERDUE, {"limit": limit})).scalars())


async def issue_task(
    tx: Transaction, signer: TaskSigner, task: BmcTask, clock: datetime, parameters: BmcTaskParameters,
    seconds_max: float,
) -> None:  # fmt: skip
    """Sign the locked, requested task under a new fence. The caller holds the node's lock; `clock` was read after it."""
    drawn = (await tx.execute(_FENCE, {"node_id": task.node_id})).one()
    fence: int = drawn.fence
    body = TaskBody(
        task_id=task.id, type=TYPES[task.kind], node_id=task.node_id, node_epoch=drawn.epoch, allocation_id=None, fence=fence,
        parameters=parameters.model_dump(mode="json"),
        not_before=clock - timedelta(seconds=NOT_BEFORE_ALLOWANCE_SECONDS),
        expires_at=clock + timedelta(seconds=seconds_max), key_id=signer.key_id,
    )  # fmt: skip
    values = {
        "id": task.id, "fence": fence, "envelope": signer.sign(body).model_dump_json(), "clock": clock,
        "waits_for": WAITS_FOR_AGENT, "waits_until": body.expires_at + timedelta(seconds=REPORT_GRACE_SECONDS),
    }  # fmt: skip
    await tx.execute(_ISSUE, values)


async def signed_recipients(reading: Reading, task_id: UUID) -> dict[UUID, str]:
    """The sealing keys that an issued task names, by recipient, in hex."""
    return (await _signed(reading, task_id)).recipients


async def signed_ports(reading: Reading, task_id: UUID) -> PortOrder | None:
    """What an issued task names of the ports of its machine."""
    return (await _signed(reading, task_id)).ports


async def _signed(reading: Reading, task_id: UUID) -> BmcTaskParameters:
    envelope = (await reading.execute(_ENVELOPE, {"id": task_id})).scalar_one()
    body = TaskBody.model_validate_json(base64.b64decode(Envelope.model_validate(envelope).payload))
    return BmcTaskParameters.model_validate(body.parameters)


async def end_task(
    tx: Transaction, task_id: UUID, outcome: BmcTaskOutcome, failure: str | None, power_state: str | None = None
) -> None:
    """The locked, open task has ended. `failure` is cut to what the table holds; `power_state`: as it was read last."""
    cut = None if failure is None else failure[:500]
    values = {"id": task_id, "outcome": outcome.value, "failure": cut, "power_state": power_state}
    await tx.execute(_END, values)


async def end_open(tx: Transaction, node_id: UUID, failure: str) -> None:
    """End the open task of a locked BMC without a report, if there is one: `unknown` if it was signed."""
    await tx.execute(_END_OPEN, {"node_id": node_id, "failure": failure})


async def lease_bmc_tasks(
    tx: Transaction, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, known: Sequence[UUID], limit: int,
    reach_limit: int | None = None,
) -> list[Leased] | None:  # fmt: skip
    """Issued tasks of the agent's site that it did not say it has, oldest first; None if it does not hold this lease.

    `reach_limit`: at most so many that wait for a machine's SSH server, besides `limit` others; None: they count as the others.
    """
    values = {
        "agent_id": agent_id, "serial": serial, "run_id": run_id, "lease_fence": lease_fence, "known": list(known),
        "limit": limit, "reach_limit": reach_limit, "grace": REPORT_GRACE_SECONDS,
    }  # fmt: skip
    rows = (await tx.execute(_LEASE, values)).all()
    if not rows[0].held:
        return None
    return [Leased(row.id, row.envelope) for row in rows if row.id is not None]
