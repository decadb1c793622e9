"""SQL of the BMCs that answer, and of nodes without an agent, which are online as long as theirs does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction


@dataclass(frozen=True, slots=True)
class ListedBmc:
    """A BMC that the holder of the lease asks."""

    node_id: UUID
    url: str
    certificate_sha256: str


@dataclass(frozen=True, slots=True)
class Turned:
    """A node whose liveness has changed. `answered_at`: when its BMC answered last, None if it never did."""

    name: str
    is_online: bool
    answered_at: datetime | None


# The lease and the certificate count in the statement itself, as with tasks.
_MACHINES = """
with held as (
    select s.id from site_agents a join sites s on s.id = a.site_id
    join site_agent_certificates c on c.serial = :serial and c.agent_id = a.id and c.revoked_at is null
        and c.agent_epoch = a.epoch
    where a.id = :agent_id and a.state <> 'retired' and a.identity_conflict_at is null
      and s.lease_agent = a.id and s.lease_run = :run_id and s.lease_fence = :lease_fence and s.lease_until > clock_timestamp()
), page as (
    select b.node_id, b.url, encode(b.certificate_sha256, 'hex') as certificate_sha256
    from held h join node_bmcs b on b.site_id = h.id
    where b.node_id > :after order by b.node_id limit :limit
)
select exists (select from held) as held, statement_timestamp() as listed_at, p.node_id, p.url, p.certificate_sha256
from (select) one left join page p on true order by p.node_id
"""
# Locked rows are passed over until the next round: a report about many waits for no lock, and no deadlock is possible.
_NOTE = """
with held as (
    select s.id from site_agents a join sites s on s.id = a.site_id
    join site_agent_certificates c on c.serial = :serial and c.agent_id = a.id and c.revoked_at is null
        and c.agent_epoch = a.epoch
    where a.id = :agent_id and a.state <> 'retired' and a.identity_conflict_at is null
      and s.lease_agent = a.id and s.lease_run = :run_id and s.lease_fence = :lease_fence and s.lease_until > clock_timestamp()
    for share of s
), answered as (
    select b.node_id from held h
    join node_bmcs b on b.site_id = h.id and b.node_id = any (cast(:answered as uuid[])) and b.changed_at < :listed_at
    for no key update of b skip locked
), not_answered as (
    select b.node_id from held h
    join node_bmcs b on b.site_id = h.id and b.node_id = any (cast(:silent as uuid[])) and b.changed_at < :listed_at
        and b.silent_because is distinct from (cast(:codes as text[]))[array_position(cast(:silent as uuid[]), b.node_id)]
    for no key update of b skip locked
), noted as (
    update node_bmcs set answered_at = clock_timestamp(), silent_because = null
    where node_id = any (array(select node_id from answered))
), noted_silent as (
    update node_bmcs set silent_because = (cast(:codes as text[]))[array_position(cast(:silent as uuid[]), node_id)]
    where node_id = any (array(select node_id from not_answered))
)
select exists (select from held) as held
"""
_FIND_TURNED = """
select n.id from node_bmcs b join nodes n on n.id = b.node_id
where n.driver = 'redfish' and n.enrolled_at is null and n.state not in ('registered', 'retired')
  and n.online <> coalesce(b.answered_at > clock_timestamp() - make_interval(secs => :silent_seconds), false)
order by n.id limit :limit
"""
_TURN = """
update nodes n set online = not n.online, row_version = n.row_version + 1
from node_bmcs b
where n.id = :node_id and b.node_id = n.id and n.driver = 'redfish' and n.enrolled_at is null
  and n.state not in ('registered', 'retired')
  and n.online <> coalesce(b.answered_at > clock_timestamp() - make_interval(secs => :silent_seconds), false)
returning n.name, n.online, b.answered_at
"""
_SET_UNREACHABLE = """
update nodes set online = false, row_version = row_version + 1
where id = :node_id and online and driver = 'redfish' and enrolled_at is null
returning name
"""


async def read_machines(
    reading: Reading, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, after: UUID, limit: int
) -> tuple[list[ListedBmc] | None, datetime]:
    """BMCs of the agent's site after this node, by node, None if it does not hold this lease; and when they were read."""
    values = {
        "agent_id": agent_id, "serial": serial, "run_id": run_id, "lease_fence": lease_fence, "after": after, "limit": limit,
    }  # fmt: skip
    rows = (await reading.execute(_MACHINES, values)).all()
    if not rows[0].held:
        return None, rows[0].listed_at
    found = [ListedBmc(row.node_id, row.url, row.certificate_sha256) for row in rows if row.node_id is not None]
    return found, rows[0].listed_at


async def note_answers(
    tx: Transaction, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, listed_at: datetime,
    answered: Sequence[UUID], silent: Mapping[UUID, str],
) -> bool:  # fmt: skip
    """Record which BMCs of the agent's site answered now, and why others did not. False: it does not hold this lease."""
    values = {
        "agent_id": agent_id, "serial": serial, "run_id": run_id, "lease_fence": lease_fence,
        "listed_at": listed_at, "answered": list(answered),
        "silent": list(silent), "codes": list(silent.values()),
    }  # fmt: skip
    held: bool = (await tx.execute(_NOTE, values)).scalar_one()
    return held


async def find_turned(reading: Reading, silent_seconds: float, limit: int) -> list[UUID]:
    """Nodes without an agent that are online although their BMC was silent for so long, or offline although it answers."""
    return list((await reading.execute(_FIND_TURNED, {"silent_seconds": silent_seconds, "limit": limit})).scalars())


async def turn(tx: Transaction, node_id: UUID, silent_seconds: float) -> Turned | None:
    """Set the liveness of the locked node by its BMC; None if that changes nothing."""
    row = (await tx.execute(_TURN, {"node_id": node_id, "silent_seconds": silent_seconds})).first()
    return None if row is None else Turned(row.name, row.online, row.answered_at)


async def set_offline_without_bmc(tx: Transaction, node_id: UUID) -> Turned | None:
    """The locked node has no BMC any more: without an agent, nothing is placed on it. None if that changes nothing."""
    row = (await tx.execute(_SET_UNREACHABLE, {"node_id": node_id})).first()
    return None if row is None else Turned(row.name, is_online=False, answered_at=None)
