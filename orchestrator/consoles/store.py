"""SQL of console sessions. Lock order: node, allocation, session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from node_agent.protocol import TaskType
from node_agent.wire.console import CONSOLE_FEATURE, ConsoleParameters
from orchestrator.consoles.rules import GRACE_SECONDS, TASK_GRACE_SECONDS, Counts, EndReason, Mode, SiteMachine, Target
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.store.node_tasks import issue_node_task


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a process opens: `address` is where agents reach it. For the mode log, the part of the log."""

    allocation_id: UUID
    mode: Mode
    process_id: UUID
    address: str
    secret_sha256: str
    dial_seconds: float
    session_seconds: float
    offset: int = 0
    bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that waits for its task."""

    id: UUID
    node_id: UUID
    site_id: UUID | None
    waits_until: datetime


@dataclass(frozen=True, slots=True)
class Unsigned:
    """A session without a task, locked, with what is known of its node; `clock` was read after the locks."""

    id: UUID
    allocation_id: UUID
    mode: Mode
    address: str
    secret_sha256: str
    log_offset: int
    log_bytes_max: int
    seconds_max: float
    waits_until: datetime
    site_id: UUID | None
    epoch: int
    clock: datetime

    def order(self, dial_seconds: float) -> ConsoleParameters:
        """What the agent is to do: it has `dial_seconds` from the locks on to connect."""
        host, _, port = self.address.rpartition(":")
        return ConsoleParameters(
            session_id=self.id, allocation_id=self.allocation_id, mode=self.mode, host=host.strip("[]"), port=int(port),
            secret_sha256=self.secret_sha256, dial_until=self.clock + timedelta(seconds=dial_seconds), offset=self.log_offset,
            bytes_max=self.log_bytes_max,
        )  # fmt: skip

    def task_seconds(self, dial_seconds: float) -> float:
        """How long its task counts."""
        return dial_seconds + self.seconds_max + TASK_GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that has just ended, for the audit."""

    allocation_id: UUID
    tenant_id: UUID
    opened_by: str
    mode: Mode
    seconds: float


_LOCK_TARGET = """
select a.tenant_id, a.node_id, a.state, a.guest_state, n.online and n.identity_conflict_at is null as online,
       :feature = any (n.agent_features) as supported, n.agent_version
from allocations a join nodes n on n.id = a.node_id
where a.id = :allocation_id for no key update of a
"""
_MACHINE = """
select b.site_id, b.console_host_key is not null as is_pinned,
       exists (select from deploy_runs r where r.node_id = b.node_id and r.ended_at is null) as is_run_open
from node_bmcs b where b.node_id = :node_id
"""
# Sessions of one tenant are opened one after another, so that its bound is exact.
_LOCK_TENANT = (
    "select pg_advisory_xact_lock('console_sessions'::regclass::oid::integer, hashtext(cast(:tenant_id as text)))"
)
_STANDING = """
select count(*) as open, coalesce(bool_or(allocation_id = :allocation_id and mode = 'attach'), false) as attached
from console_sessions where tenant_id = :tenant_id and ended_at is null
"""
_INSERT = """
insert into console_sessions (allocation_id, tenant_id, node_id, mode, opened_by, process_id, address, secret_sha256, log_offset,
                              log_bytes_max, seconds_max, site_id, waits_for, waits_since, waits_until)
select :allocation_id, :tenant_id, :node_id, :mode, :opened_by, :process_id, :address, :secret_sha256, :offset, :bytes_max,
       :session_seconds, :site_id, 'worker', c.now, c.now + make_interval(secs => :dial_seconds)
from (select clock_timestamp() as now) c
returning id, node_id, site_id, waits_until
"""
_FIND_UNSIGNED = """
select id from console_sessions where ended_at is null and task_id is null and waits_until > clock_timestamp()
order by opened_at limit :limit
"""
_LOCK_NODE = """
select epoch from nodes where id = (select node_id from console_sessions where id = :id) for no key update
"""
_LOCK_UNSIGNED = """
select s.id, s.allocation_id, s.mode, s.address, s.secret_sha256, s.log_offset, s.log_bytes_max, s.seconds_max, s.waits_until,
       s.node_id, s.site_id, clock_timestamp() as clock
from console_sessions s where s.id = :id and s.ended_at is null and s.task_id is null for no key update
"""
_ISSUED = """
update console_sessions set task_id = :task_id, waits_for = 'node', waits_since = :clock, waits_until = :dial_until where id = :id
"""
_ATTACH = """
update console_sessions set attached_at = c.now, waits_for = 'end', waits_since = c.now,
       waits_until = c.now + make_interval(secs => seconds_max + :grace_seconds)
from (select clock_timestamp() as now) c
where id = :id and node_id = :node_id and process_id = :process_id and ended_at is null and task_id is not null
  and attached_at is null and site_id is null
returning id
"""
_KEEP = """
with kept as (
    update console_sessions set seen_at = clock_timestamp()
    where id = any(cast(:ids as uuid[])) and process_id = :process_id and ended_at is null
    returning id, allocation_id, node_id, task_id, site_id, lease_fence, opened_at
)
select k.id, case when a.state <> 'active' then 'released'
                  when k.site_id is not null and (a.guest_state is null or a.guest_state not in ('running', 'stopped')
                       or exists (select from deploy_runs r where r.node_id = k.node_id and r.ended_at is null)
                       or exists (select from node_bmcs b where b.node_id = k.node_id and b.changed_at > k.opened_at))
                       then 'guest_ended'
                  when k.lease_fence is not null and not exists (
                       select from sites s join node_bmcs b on b.site_id = s.id and b.node_id = k.node_id
                       where s.id = k.site_id and s.lease_fence = k.lease_fence and s.lease_until > clock_timestamp())
                       then 'agent_lost'
                  when n.identity_conflict_at is not null or t.node_epoch <> n.epoch then 'agent_lost' end as reason
from kept k join allocations a on a.id = k.allocation_id join nodes n on n.id = k.node_id
     left join node_tasks t on t.id = k.task_id
"""
_END = """
update console_sessions set ended_at = c.now, reason = :reason, waits_for = null, waits_since = null, waits_until = null,
       envelope = null,
       bytes_to_guest = greatest(bytes_to_guest, :to_guest), bytes_to_tenant = greatest(bytes_to_tenant, :to_tenant),
       bytes_dropped = greatest(bytes_dropped, :dropped)
from (select clock_timestamp() as now) c
where id = :id and ended_at is null
returning allocation_id, tenant_id, opened_by, mode, extract(epoch from c.now - opened_at)::double precision as seconds, task_id
"""
# A task that no agent has finished must not be handed out for a session that is over.
_WITHDRAW = """
update node_tasks set state = 'superseded', finished_at = clock_timestamp()
where id = :task_id and state in ('queued', 'dispatched')
"""
_FIND_LOST = """
select id from console_sessions
where ended_at is null and (seen_at < clock_timestamp() - make_interval(secs => :silent_seconds)
                            or waits_until < clock_timestamp() - make_interval(secs => :grace_seconds))
order by waits_until limit :limit
"""
_LOCK_LOST = """
select seen_at < clock_timestamp() - make_interval(secs => :silent_seconds) as silent,
       waits_until < clock_timestamp() - make_interval(secs => :grace_seconds) as late, waits_for
from console_sessions where id = :id and ended_at is null for no key update
"""
_FORGET = """
with old as (
    select id, task_id from console_sessions
    where ended_at < clock_timestamp() - make_interval(secs => :retention_seconds) order by ended_at limit :limit
), tasks as (
    delete from node_tasks t using old where t.id = old.task_id and t.state not in ('queued', 'dispatched')
), gone as (
    delete from console_sessions s using old where s.id = old.id returning s.id
)
select count(*) from gone
"""


async def lock_target(tx: Transaction, allocation_id: UUID) -> Target | None:
    """The allocation, whose state stays so until the transaction ends, and its node."""
    row = (await tx.execute(_LOCK_TARGET, {"allocation_id": allocation_id, "feature": CONSOLE_FEATURE})).first()
    return None if row is None else Target(**row._mapping)


async def read_machine(tx: Transaction, node_id: UUID) -> SiteMachine | None:
    """What decides about the console of the node's machine; None if it has no BMC."""
    row = (await tx.execute(_MACHINE, {"node_id": node_id})).first()
    return None if row is None else SiteMachine(**row._mapping)


async def read_open(tx: Transaction, tenant_id: UUID, allocation_id: UUID) -> tuple[int, bool]:
    """How many sessions the tenant has open, and whether one types into this console; exact until the transaction ends."""
    await tx.execute(_LOCK_TENANT, {"tenant_id": tenant_id})
    row = (await tx.execute(_STANDING, {"tenant_id": tenant_id, "allocation_id": allocation_id})).one()
    return row.open, row.attached


async def insert_session(tx: Transaction, new: NewSession, target: Target, opened_by: str) -> Opened:
    """Open a session; the worker issues its task."""
    values: dict[str, object] = {
        "allocation_id": new.allocation_id, "tenant_id": target.tenant_id, "node_id": target.node_id, "mode": new.mode,
        "opened_by": opened_by, "process_id": new.process_id, "address": new.address, "secret_sha256": new.secret_sha256,
        "offset": new.offset, "bytes_max": new.bytes_max, "session_seconds": new.session_seconds,
        "dial_seconds": new.dial_seconds, "site_id": None if target.machine is None else target.machine.site_id,
    }  # fmt: skip
    return Opened(**(await tx.execute(_INSERT, values)).one()._mapping)


async def find_unsigned(reading: Reading, limit: int) -> list[UUID]:
    """Open sessions without a task, the oldest first."""
    return list((await reading.execute(_FIND_UNSIGNED, {"limit": limit})).scalars())


async def lock_unsigned(tx: Transaction, session_id: UUID) -> tuple[UUID, Unsigned] | None:
    """The node and the session, both locked, if it is open and has no task."""
    node = (await tx.execute(_LOCK_NODE, {"id": session_id})).first()
    row = (await tx.execute(_LOCK_UNSIGNED, {"id": session_id})).first()
    if node is None or row is None:
        return None
    found = dict(row._mapping)
    return found.pop("node_id"), Unsigned(**found, epoch=node.epoch)


async def issue(tx: Transaction, signer: TaskSigner, node_id: UUID, session: Unsigned, dial_seconds: float) -> None:
    """Sign and queue the task of a locked session."""
    order = session.order(dial_seconds)
    body = await issue_node_task(
        tx, signer, TaskType.CONSOLE_ATTACH, node_id, session.epoch, clock=session.clock,
        seconds_max=session.task_seconds(dial_seconds), previous_task=None, parameters=order,
    )  # fmt: skip
    values = {"id": session.id, "task_id": body.task_id, "clock": session.clock, "dial_until": order.dial_until}
    await tx.execute(_ISSUED, values)


async def note_attached(tx: Transaction, session_id: UUID, node_id: UUID, process_id: UUID) -> bool:
    """Record that the node's agent serves the session; False unless it waits for this node at this process."""
    values = {"id": session_id, "node_id": node_id, "process_id": process_id, "grace_seconds": GRACE_SECONDS}
    return (await tx.execute(_ATTACH, values)).first() is not None


async def keep_sessions(tx: Transaction, process_id: UUID, session_ids: list[UUID]) -> dict[UUID, EndReason | None]:
    """Confirm these sessions, which a process still has; those that are open, each with a reason to end it.

    None: its allocation is active, and its node has the identity that its task was signed for, uncontested.
    """
    found = await tx.execute(_KEEP, {"process_id": process_id, "ids": session_ids})
    return {row.id: None if row.reason is None else EndReason(row.reason) for row in found}


async def end_session(tx: Transaction, session_id: UUID, reason: str, counts: Counts) -> Ended | None:
    """End an open session and withdraw its task; None if it has ended."""
    values = {
        "id": session_id, "reason": reason, "to_guest": counts.to_guest, "to_tenant": counts.to_tenant,
        "dropped": counts.dropped,
    }  # fmt: skip
    row = (await tx.execute(_END, values)).first()
    if row is None:
        return None
    found = dict(row._mapping)
    if (task_id := found.pop("task_id")) is not None:
        await tx.execute(_WITHDRAW, {"task_id": task_id})
    return Ended(**found)


async def find_lost(reading: Reading, silent_seconds: float, limit: int) -> list[UUID]:
    """Open sessions whose process is silent or that are far past their deadline, the earliest deadline first."""
    values = {"silent_seconds": silent_seconds, "grace_seconds": GRACE_SECONDS, "limit": limit}
    return list((await reading.execute(_FIND_LOST, values)).scalars())


async def lock_lost(tx: Transaction, session_id: UUID, silent_seconds: float) -> tuple[bool, bool, str] | None:
    """Of an open session, locked: whether its process is silent, whether it is late, and what it waits for."""
    values = {"id": session_id, "silent_seconds": silent_seconds, "grace_seconds": GRACE_SECONDS}
    row = (await tx.execute(_LOCK_LOST, values)).first()
    return None if row is None else (row.silent, row.late, row.waits_for)


async def forget_ended(tx: Transaction, retention_seconds: float, limit: int) -> int:
    """Delete ended sessions past their retention, with their tasks; how many."""
    values = {"retention_seconds": retention_seconds, "limit": limit}
    return int((await tx.execute(_FORGET, values)).scalar_one())
