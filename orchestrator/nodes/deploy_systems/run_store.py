"""SQL of runs of deploy systems. Every change holds the lock of the node's row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.deploy_systems.run_rules import (
    HISTORY_MAX,
    SWITCHING,
    Part,
    RunKind,
    RunOutcome,
    RunStep,
    Standing,
    first_step,
)


@dataclass(frozen=True, slots=True)
class DeployRun:
    """A run as it is stored. `outcome` is None while it is open. `medium`: what its deploy system is permitted with."""

    id: UUID
    node_id: UUID
    site_id: UUID
    kind: RunKind
    step: RunStep
    medium: JsonObject
    requested_at: datetime
    requested_by: str
    stop_requested_at: datetime | None
    stop_requested_by: str | None
    deploy_epoch: int | None
    bmc_task_id: UUID | None
    deploy_task_id: UUID | None
    attempts: int
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    ended_at: datetime | None
    outcome: RunOutcome | None
    failure: str | None
    parameters: JsonObject
    work_seconds: int
    task_id: UUID | None
    allocation_id: UUID | None
    claim_id: int | None
    findings: list[dict[str, str]]
    isolation: str


_IS_OPEN = "select exists (select from deploy_runs where node_id = :node_id and ended_at is null)"
_NEWEST = """
select r.id, r.node_id, r.site_id, r.kind, r.step, r.medium, r.requested_at, r.requested_by, r.stop_requested_at,
       r.stop_requested_by, r.deploy_epoch, r.bmc_task_id, r.deploy_task_id, r.attempts, r.waits_for, r.waits_since,
       r.waits_until, r.ended_at, r.outcome, r.failure, r.parameters, r.work_seconds,
       r.task_id, r.allocation_id, r.claim_id, r.findings, r.isolation
from deploy_runs r where r.node_id = :node_id order by r.id desc limit 1
"""
_OPEN = """
select r.id, r.node_id, r.site_id, r.kind, r.step, r.medium, r.requested_at, r.requested_by, r.stop_requested_at,
       r.stop_requested_by, r.deploy_epoch, r.bmc_task_id, r.deploy_task_id, r.attempts, r.waits_for, r.waits_since,
       r.waits_until, r.ended_at, r.outcome, r.failure, r.parameters, r.work_seconds,
       r.task_id, r.allocation_id, r.claim_id, r.findings, r.isolation
from deploy_runs r where r.node_id = :node_id and r.ended_at is null
"""
_ONE = """
select r.id, r.node_id, r.site_id, r.kind, r.step, r.medium, r.requested_at, r.requested_by, r.stop_requested_at,
       r.stop_requested_by, r.deploy_epoch, r.bmc_task_id, r.deploy_task_id, r.attempts, r.waits_for, r.waits_since,
       r.waits_until, r.ended_at, r.outcome, r.failure, r.parameters, r.work_seconds,
       r.task_id, r.allocation_id, r.claim_id, r.findings, r.isolation
from deploy_runs r where r.id = :id
"""
_INSERT = """
insert into deploy_runs (node_id, site_id, kind, step, medium, parameters, work_seconds, requested_by, bmc_task_id, task_id,
                         allocation_id, claim_id, waits_for, waits_since, waits_until, attempts, isolation)
select :node_id, :site_id, :kind, :step, cast(:medium as jsonb), cast(:parameters as jsonb), :work_seconds, :by, :bmc_task_id,
       :task_id, :allocation_id, :claim_id, 'site_agent', c.now, c.now + make_interval(secs => :seconds_max),
       case when :step = 'end' then 1 else 0 end,
       coalesce((select n.isolation from node_segments n where n.node_id = :node_id and :step = 'power_on'), 'none')
from (select clock_timestamp() as now) c
"""
# A tenant switches its machine as often as it likes: these runs do not push out the ones with reports.
_FORGET = """
delete from deploy_runs where node_id = :node_id and ended_at is not null and id in (
    select id from deploy_runs
    where node_id = :node_id and (kind in ('stop', 'start', 'reboot', 'rescue', 'attest')) = :is_frequent
    order by id desc offset :history_max)
  and id is distinct from (
    select id from deploy_runs where node_id = :node_id and outcome = 'completed' order by id desc limit 1)
  and id is distinct from (
    select id from deploy_runs where node_id = :node_id and kind = 'rescue' and deploy_epoch is not null order by id desc limit 1)
"""
_COMPLETED_MEDIUM = """
select medium from deploy_runs where node_id = :node_id and outcome = 'completed' order by id desc limit 1
"""
_LEAVES_RESCUE = """
select exists (select from deploy_runs r where r.node_id = :node_id and r.kind = 'rescue' and r.deploy_epoch is not null
               and not exists (select from deploy_runs l where l.node_id = r.node_id and l.id > r.id and l.outcome = 'completed'))
"""
_STEP = """
update deploy_runs set step = :step, bmc_task_id = coalesce(:bmc_task_id, bmc_task_id), failure = left(:failure, 500),
    attempts = case when :step not in ('end', 'rotate', 'to_provisioning', 'to_tenant') then attempts
                    when step = :step then attempts + 1 else 1 end,
    isolation = case when :step in ('start', 'power_on') then coalesce((
        select n.isolation from node_segments n where n.node_id = deploy_runs.node_id), isolation) else isolation end,
    waits_for = :waits_for, waits_since = clock_timestamp(),
    waits_until = clock_timestamp() + make_interval(secs => :seconds_max)
where id = :id
"""
_PERMIT = "update deploy_runs set deploy_epoch = :deploy_epoch, deploy_task_id = :deploy_task_id where id = :id"
_STOP = """
update deploy_runs set stop_requested_at = clock_timestamp(), stop_requested_by = :by
where id = :id and stop_requested_at is null
"""
_END = """
update deploy_runs set ended_at = clock_timestamp(), outcome = :outcome, failure = left(:failure, 500), waits_for = null,
    waits_since = null, waits_until = null, parameters = parameters - 'config_drive' - 'ssh_public_keys',
    findings = cast(:findings as jsonb)
where id = :id
"""
_STANDING = """
select b.id is not null as has_bmc_task, b.outcome as bmc_outcome, b.issued_at is not null as bmc_signed,
       b.failure as bmc_failure, d.id is not null as has_deploy_task, d.ended_at is not null as deploy_ended,
       d.task_id is not null as deploy_signed, d.failure as deploy_failure,
       s.hello_at is not null and s.ended_at is null as is_started, r.waits_until <= clock_timestamp() as is_overdue,
       r.stop_requested_at is not null
           or r.task_id is not null and coalesce(k.state not in ('queued', 'dispatched'), true) as is_stopped,
       r.kind = 'wipe' and r.task_id is not null and coalesce(m.rotates_at_release, false) as rotates,
       exists (select from node_ports p where p.node_id = r.node_id) as has_ports
from deploy_runs r
left join node_tasks k on k.id = r.task_id
left join node_bmcs m on m.node_id = r.node_id
left join bmc_tasks b on b.id = r.bmc_task_id
left join deploy_tasks d on d.id = r.deploy_task_id
left join deploy_systems s on s.node_id = r.node_id and s.deploy_epoch = r.deploy_epoch
where r.id = :id
"""
# What the pure rule decides about: a run that is not among these is one that it leaves alone.
_FIND = """
select r.node_id from deploy_runs r
left join bmc_tasks b on b.id = r.bmc_task_id
left join deploy_tasks d on d.id = r.deploy_task_id
left join deploy_systems s on s.node_id = r.node_id and s.deploy_epoch = r.deploy_epoch
left join node_tasks k on k.id = r.task_id
cross join lateral (
    select r.stop_requested_at is not null
           or r.task_id is not null and coalesce(k.state not in ('queued', 'dispatched'), true) as is_stopped
) o
where r.ended_at is null
  and (r.waits_until <= clock_timestamp()
       or case when r.step = 'work' then d.id is null or d.ended_at is not null or o.is_stopped
               else b.id is null or b.outcome is not null
                    or r.step = 'start' and s.hello_at is not null and s.ended_at is null
                    or r.step <> 'end' and o.is_stopped and (r.step = 'reach' or b.issued_at is null) end)
order by r.waits_until, r.id limit :limit
"""


def _run(row: Any) -> DeployRun:
    columns = dict(row._mapping)
    outcome = columns["outcome"]
    return DeployRun(
        **{
            **columns, "kind": RunKind(columns["kind"]), "step": RunStep(columns["step"]),
            "outcome": None if outcome is None else RunOutcome(outcome),
        }
    )  # fmt: skip


async def leaves_rescue(reading: Reading, node_id: UUID) -> bool:
    """Whether a rescue system may run on the machine: one was permitted, and no run has completed since."""
    return bool((await reading.execute(_LEAVES_RESCUE, {"node_id": node_id})).scalar_one())


async def is_open(reading: Reading, node_id: UUID) -> bool:
    """Whether a run of the node is open."""
    return bool((await reading.execute(_IS_OPEN, {"node_id": node_id})).scalar_one())


async def read_newest(reading: Reading, node_id: UUID) -> DeployRun | None:
    """The newest run of a node."""
    row = (await reading.execute(_NEWEST, {"node_id": node_id})).first()
    return None if row is None else _run(row)


async def read_run(reading: Reading, run_id: UUID) -> DeployRun | None:
    """One run; None if it is not kept."""
    row = (await reading.execute(_ONE, {"id": run_id})).first()
    return None if row is None else _run(row)


async def read_completed_medium(reading: Reading, node_id: UUID) -> JsonObject | None:
    """What the deploy system of the newest completed run was permitted with: its network has worked. None without such a run."""
    medium: JsonObject | None = (await reading.execute(_COMPLETED_MEDIUM, {"node_id": node_id})).scalar()
    return medium


async def read_open(tx: Transaction, node_id: UUID) -> DeployRun | None:
    """The open run of a locked node."""
    row = (await tx.execute(_OPEN, {"node_id": node_id})).first()
    return None if row is None else _run(row)


@dataclass(frozen=True, slots=True)
class RunWork:
    """What the deploy system of a run does: parameters of its task without the deploy epoch, and how long it may take.

    `ends_first`: a rescue system may run on the machine, or its ports are not proven to be in its tenant's segment.
    """

    kind: RunKind
    parameters: JsonMapping
    seconds_max: int
    ends_first: bool = False


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The task of an allocation that a run performs, and the claim that it runs for."""

    task_id: UUID
    allocation_id: UUID
    claim_id: int


async def insert_run(
    tx: Transaction, node_id: UUID, site_id: UUID, work: RunWork, medium: JsonMapping, by: str, bmc_task_id: UUID,
    seconds_max: float, owner: RunOwner | None = None,
) -> None:  # fmt: skip
    """A run of a locked node that has none open, at its first step; `owner` None: an operator's.

    Of the ended ones the newest `HISTORY_MAX` that switched, rescued or attested the machine are kept, as many others, the
    newest that completed, and the newest rescue system, which a switch may have to end.
    """
    values = {
        "node_id": node_id, "site_id": site_id, "kind": work.kind.value,
        "step": first_step(work.kind, work.ends_first).value, "medium": json.dumps(medium), "by": by,
        "bmc_task_id": bmc_task_id, "seconds_max": seconds_max, "parameters": json.dumps(work.parameters),
        "work_seconds": work.seconds_max, "task_id": owner and owner.task_id,
        "allocation_id": owner and owner.allocation_id, "claim_id": owner and owner.claim_id,
    }  # fmt: skip
    await tx.execute(_INSERT, values)
    is_frequent = work.kind in SWITCHING or work.kind in (RunKind.RESCUE, RunKind.ATTEST)
    await tx.execute(_FORGET, {"node_id": node_id, "history_max": HISTORY_MAX, "is_frequent": is_frequent})


async def set_step(
    tx: Transaction, run: UUID, step: RunStep, bmc_task_id: UUID | None, failure: str | None, seconds_max: float
) -> None:
    """The open run is at this step, which waits for so long; `bmc_task_id` None: for its deploy system."""
    values = {
        "id": run, "step": step.value, "bmc_task_id": bmc_task_id, "failure": failure, "seconds_max": seconds_max,
        "waits_for": "deploy_system" if bmc_task_id is None else "site_agent",
    }  # fmt: skip
    await tx.execute(_STEP, values)


async def set_permitted(tx: Transaction, run: UUID, deploy_epoch: int, deploy_task_id: UUID) -> None:
    """The run has permitted its deploy system, and requested the task of it."""
    await tx.execute(_PERMIT, {"id": run, "deploy_epoch": deploy_epoch, "deploy_task_id": deploy_task_id})


async def request_stop(tx: Transaction, run: UUID, by: str) -> None:
    """The open run is to stop; the first request counts."""
    await tx.execute(_STOP, {"id": run, "by": by})


async def end_run(
    tx: Transaction, run: UUID, outcome: RunOutcome, failure: str | None, findings: Sequence[Mapping[str, str]] = ()
) -> None:
    """The open run has ended. `findings`: code and detail of what is wrong with the machine."""
    values = {"id": run, "outcome": outcome.value, "failure": failure, "findings": json.dumps(list(findings))}
    await tx.execute(_END, values)


async def read_standing(tx: Transaction, run: DeployRun) -> Standing:
    """The open run of a locked node with its parts; deadlines are evaluated now."""
    row = (await tx.execute(_STANDING, {"id": run.id})).one()
    part = None
    if run.step is RunStep.WORK:
        if row.has_deploy_task:
            part = Part(not row.deploy_ended, row.deploy_signed, row.deploy_failure)
    elif row.has_bmc_task:
        part = Part(row.bmc_outcome is None, row.bmc_signed, row.bmc_failure, row.bmc_outcome == "unknown")
    return Standing(
        run.step, part, run.deploy_epoch is not None, row.is_started, row.is_stopped, row.is_overdue,
        run.failure, run.attempts, run.kind, row.rotates, row.has_ports,
    )  # fmt: skip


async def find_movable(reading: Reading, limit: int) -> list[UUID]:
    """Nodes whose run has a next move, the earliest deadline first."""
    return list((await reading.execute(_FIND, {"limit": limit})).scalars())
