"""SQL of attestations on demand. Every change holds the lock of the node's row."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.protocol import TaskType
from node_agent.wire.attestations import ATTEST_FEATURE, AttestParameters
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.attestation.rules import (
    ATTEST_SECONDS_MAX,
    HISTORY_MAX,
    NONCE_BYTES,
    REQUEST_SECONDS_MAX,
    Judgement,
)
from orchestrator.nodes.states import NodeState
from orchestrator.tasks.signing import TaskSigner
from orchestrator.tasks.states import TaskState
from orchestrator.tasks.store.node_tasks import issue_node_task


@dataclass(frozen=True, slots=True)
class Attestation:
    """An attestation as operators see it. `verdict` is null while it is open."""

    id: UUID
    node_id: UUID
    nonce: bytes
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None
    deploy_run_id: UUID | None
    waits_for: str | None
    waits_since: datetime | None
    waits_until: datetime | None
    ended_at: datetime | None
    verdict: str | None
    code: str | None
    detail: str
    pcrs: list[str] | None
    compared: list[str]
    evidence: JsonObject | None


@dataclass(frozen=True, slots=True)
class AcceptedPcrs:
    """What later attestations of a node are compared with."""

    pcrs: list[str]
    attestation_id: UUID
    accepted_at: datetime
    accepted_by: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What decides about an attestation on a locked node; `clock` was read after the lock."""

    state: NodeState
    reachable: bool
    supported: bool
    epoch: int
    agent_version: str | None
    topology: JsonObject | None
    clock: datetime


@dataclass(frozen=True, slots=True)
class OpenAttestation:
    """The open attestation of a locked node, with its task. `task_state` None: it has none, or the task is gone."""

    id: UUID
    nonce: bytes
    requested_at: datetime
    task_id: UUID | None
    deploy_run_id: UUID | None
    waits_until: datetime
    previous_task: UUID | None
    task_state: TaskState | None
    task_finished_at: datetime | None
    task_failure: str | None
    result: JsonObject | None


_INSERT = """
insert into node_attestations (node_id, nonce, requested_by, deploy_run_id, waits_for, waits_since, waits_until)
select :node_id, :nonce, :by, :deploy_run_id, :waits_for, c.now, c.now + make_interval(secs => :seconds_max)
from (select clock_timestamp() as now) c
returning id
"""
_NEWEST = """
select id, node_id, nonce, requested_at, requested_by, issued_at, deploy_run_id, waits_for, waits_since, waits_until, ended_at,
       verdict, code, detail, pcrs, compared, evidence
from node_attestations where node_id = :node_id order by id desc limit :limit
"""
_ONE = """
select id, node_id, nonce, requested_at, requested_by, issued_at, deploy_run_id, waits_for, waits_since, waits_until, ended_at,
       verdict, code, detail, pcrs, compared, evidence
from node_attestations where node_id = :node_id and id = :id
"""
_FACTS = """
select n.state, n.online and n.identity_conflict_at is null as reachable, :feature = any (n.agent_features) as supported,
       n.epoch, n.agent_version, coalesce(t.found, t.approved) as topology, clock_timestamp() as clock
from nodes n left join node_topologies t on t.node_id = n.id where n.id = :node_id
"""
_FIND = """
select a.node_id from node_attestations a join nodes n on n.id = a.node_id
left join node_tasks k on k.id = a.task_id left join deploy_runs r on r.id = a.deploy_run_id
where a.ended_at is null
  and case when a.task_id is not null then k.id is null or k.state not in ('queued', 'dispatched')
           when a.waits_until <= clock_timestamp() then true
           when a.deploy_run_id is not null then r.id is null or r.ended_at is not null
           else n.online and n.identity_conflict_at is null or n.state = 'retired' end
order by a.waits_until limit :limit
"""
_READ = """
select a.id, a.nonce, a.requested_at, a.task_id, a.deploy_run_id, a.waits_until,
       (select p.task_id from node_attestations p where p.node_id = a.node_id and p.task_id is not null and p.id <> a.id
        order by p.id desc limit 1) as previous_task,
       k.state as task_state, k.finished_at as task_finished_at, k.result,
       k.failure_code || ': ' || k.failure_detail as task_failure
from node_attestations a left join node_tasks k on k.id = a.task_id
where a.node_id = :node_id and a.ended_at is null
"""
_ISSUE = """
update node_attestations set task_id = :task_id, issued_at = :clock, waits_for = 'node', waits_since = :clock,
    waits_until = :expires_at
where id = :id
"""
_END = """
update node_attestations set waits_for = null, waits_since = null, waits_until = null, ended_at = clock_timestamp(),
    verdict = :verdict, code = :code, detail = :detail, pcrs = :pcrs, compared = :compared,
    evidence = cast(:evidence as jsonb)
where id = :id
"""
_FORGET = """
delete from node_attestations where node_id = :node_id and ended_at is not null and id in (
    select id from node_attestations where node_id = :node_id order by id desc offset :history_max)
"""
_ACCEPT = """
insert into node_accepted_pcrs (node_id, pcrs, attestation_id, accepted_by) values (:node_id, :pcrs, :attestation_id, :by)
on conflict (node_id) do update set pcrs = excluded.pcrs, attestation_id = excluded.attestation_id,
    accepted_by = excluded.accepted_by, accepted_at = clock_timestamp()
"""
_ACCEPTED = "select pcrs, attestation_id, accepted_at, accepted_by from node_accepted_pcrs where node_id = :node_id"


async def read_facts(tx: Transaction, node_id: UUID) -> NodeFacts:
    """What is known of a locked node."""
    row = (await tx.execute(_FACTS, {"node_id": node_id, "feature": ATTEST_FEATURE})).one()
    return NodeFacts(**{**row._mapping, "state": NodeState(row.state)})


async def list_attestations(reading: Reading, node_id: UUID, limit: int = HISTORY_MAX) -> list[Attestation]:
    """Attestations of the node that are kept, newest first."""
    rows = await reading.execute(_NEWEST, {"node_id": node_id, "limit": limit})
    return [Attestation(**row._mapping) for row in rows]


async def read_attestation(reading: Reading, node_id: UUID, attestation_id: UUID) -> Attestation | None:
    """One attestation of the node."""
    row = (await reading.execute(_ONE, {"node_id": node_id, "id": attestation_id})).first()
    return None if row is None else Attestation(**row._mapping)


async def insert_request(
    tx: Transaction, node_id: UUID, nonce: bytes, *, by: str, deploy_run_id: UUID | None, seconds_max: float = REQUEST_SECONDS_MAX
) -> UUID:  # fmt: skip
    """Open an attestation of a locked node that has none open; `deploy_run_id` None: a worker signs a task for its agent."""
    values = {
        "node_id": node_id, "nonce": nonce, "by": by, "deploy_run_id": deploy_run_id, "seconds_max": seconds_max,
        "waits_for": "worker" if deploy_run_id is None else "deploy_run",
    }  # fmt: skip
    found: UUID = (await tx.execute(_INSERT, values)).scalar_one()
    return found


def new_nonce() -> bytes:
    """Random bytes that no quote was made over before."""
    return secrets.token_bytes(NONCE_BYTES)


async def find_open(reading: Reading, limit: int) -> list[UUID]:
    """Nodes with an open attestation whose task can be signed, or whose wait is over."""
    return list((await reading.execute(_FIND, {"limit": limit})).scalars())


async def read_open(tx: Transaction, node_id: UUID) -> OpenAttestation | None:
    """The open attestation of a locked node, with its task."""
    row = (await tx.execute(_READ, {"node_id": node_id})).first()
    if row is None:
        return None
    state = None if row.task_state is None else TaskState(row.task_state)
    return OpenAttestation(**{**row._mapping, "task_state": state})


async def issue(
    tx: Transaction, signer: TaskSigner, node_id: UUID, known: OpenAttestation, facts: NodeFacts
) -> None:  # fmt: skip
    """Sign and queue the task of a requested attestation, and delete the task of the one before it."""
    body = await issue_node_task(
        tx, signer, TaskType.ATTEST, node_id, facts.epoch, clock=facts.clock, seconds_max=ATTEST_SECONDS_MAX,
        previous_task=known.previous_task, parameters=AttestParameters(nonce=known.nonce.hex()),
    )  # fmt: skip
    values = {"id": known.id, "task_id": body.task_id, "clock": facts.clock, "expires_at": body.expires_at}
    await tx.execute(_ISSUE, values)


async def end(
    tx: Transaction, node_id: UUID, attestation_id: UUID, judged: Judgement, compared: Sequence[str], evidence: bytes | None
) -> None:  # fmt: skip
    """End the open attestation; of the ended ones the newest `HISTORY_MAX` are kept."""
    values = {
        "id": attestation_id, "verdict": judged.verdict.value, "code": judged.code and judged.code.value,
        "detail": judged.detail, "pcrs": judged.pcrs, "compared": list(compared),
        "evidence": None if evidence is None else evidence.decode(),
    }  # fmt: skip
    await tx.execute(_END, values)
    await tx.execute(_FORGET, {"node_id": node_id, "history_max": HISTORY_MAX})


async def read_accepted(reading: Reading, node_id: UUID) -> AcceptedPcrs | None:
    """What attestations of the node are compared with; None: an operator has accepted none."""
    row = (await reading.execute(_ACCEPTED, {"node_id": node_id})).first()
    return None if row is None else AcceptedPcrs(**row._mapping)


async def accept_pcrs(tx: Transaction, node_id: UUID, pcrs: Sequence[str], attestation_id: UUID, by: str) -> None:
    """Later attestations of the locked node are compared with these PCRs."""
    values = {"node_id": node_id, "pcrs": list(pcrs), "attestation_id": attestation_id, "by": by}
    await tx.execute(_ACCEPT, values)
