"""SQL of agents of sites. Their tokens and certificates are those of nodes, on other tables (nodes/store/holders.py)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import NotFound
from orchestrator.sites.states import AgentState


@dataclass(frozen=True, slots=True)
class SiteAgent:
    """An agent as operators see it."""

    id: UUID
    site_id: UUID
    name: str
    state: AgentState
    epoch: int
    hardware_id: str | None
    enrolled_at: datetime | None
    identity_conflict_at: datetime | None
    sealing_key: bytes | None
    agent_version: str | None
    last_seen_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A pending signing request, and whether the agent's identity and its chain allow a certificate now."""

    id: UUID
    agent_id: UUID
    epoch: int
    predecessor: str | None
    key_sha256: bytes
    csr_pem: str
    request_id: str | None
    is_current: bool
    extends_chain: bool


_OF_SITES = """
select id, site_id, name, state, epoch, hardware_id, enrolled_at, identity_conflict_at, sealing_key, agent_version,
       last_seen_at, created_at
from site_agents
 where site_id = any(cast(:sites as uuid[])) order by site_id, id
"""
_OF_NAME = """
select id, site_id, name, state, epoch, hardware_id, enrolled_at, identity_conflict_at, sealing_key, agent_version,
       last_seen_at, created_at
from site_agents
 where site_id = :site_id and name = :name for no key update
"""
_READ = """
select id, site_id, name, state, epoch, hardware_id, enrolled_at, identity_conflict_at, sealing_key, agent_version,
       last_seen_at, created_at
from site_agents
 where id = :id
"""
_LOCK = """
select id, site_id, name, state, epoch, hardware_id, enrolled_at, identity_conflict_at, sealing_key, agent_version,
       last_seen_at, created_at
from site_agents
 where id = :id for no key update
"""
_INSERT = """
insert into site_agents (site_id, name) values (:site_id, :name) returning id
"""
_REGISTER = (
    "update site_agents set state = 'registered', row_version = row_version + 1 where id = :id and state = 'retired'"
)
_RETIRE = "update site_agents set state = 'retired', row_version = row_version + 1 where id = :id"
_COUNT = "select count(*) from site_agents where site_id = :site_id"
_SUSPEND = """
update site_agents set identity_conflict_at = clock_timestamp(), row_version = row_version + 1 where id = :id returning name
"""
_SEEN = """
update site_agents set last_seen_at = clock_timestamp(), agent_version = :version where id = :id
"""
_SET_SEALING_KEY = """
update site_agents set sealing_key = :key, sealing_key_epoch = epoch, row_version = row_version + 1 where id = :id
"""
_FORGET_TOKENS = "delete from site_agent_tokens where agent_id = :id and used_at is null"
_FORGET_SEALED = "delete from bmc_credentials where recipient = :id"
_SEALING_KEYS = """
select id, sealing_key from site_agents
where site_id = :site_id and state = 'active' and sealing_key is not null and identity_conflict_at is null order by id
"""
_SEALING_EPOCH = "select sealing_key_epoch from site_agents where id = :id"
# Read under the agent's lock, as for nodes (nodes/store/certificate_requests.py).
_TO_SIGN = """
select r.id, r.agent_id, r.agent_epoch as epoch, r.predecessor, r.key_sha256, r.csr_pem, r.request_id,
       a.epoch = r.agent_epoch and a.state <> 'retired' and a.identity_conflict_at is null as is_current,
       case when r.predecessor is null
            then not exists (select from site_agent_certificates c
                             where c.agent_id = r.agent_id and c.agent_epoch = r.agent_epoch)
            else exists (select from site_agent_certificates c where c.serial = r.predecessor and c.agent_id = r.agent_id
                           and c.agent_epoch = r.agent_epoch and c.revoked_at is null and c.not_after > clock_timestamp())
             and not exists (select from site_agent_certificates s where s.predecessor = r.predecessor) end as extends_chain
from site_agent_certificate_requests r join site_agents a on a.id = r.agent_id
where r.id = :id and r.serial is null and r.refusal is null
"""
_RECORD_REQUEST = """
insert into site_agent_certificate_requests (agent_id, agent_epoch, predecessor, key_sha256, csr_pem, request_id)
values (:agent_id, :epoch, :predecessor, :key_sha256, :csr_pem, :request_id)
returning id
"""


def _agent(row: object) -> SiteAgent:
    columns = dict(row._mapping)  # type: ignore[attr-defined]
    return SiteAgent(**{**columns, "state": AgentState(columns["state"])})


async def agents_of(reading: Reading, sites: list[UUID]) -> dict[UUID, list[SiteAgent]]:
    """The agents of each of these sites, the oldest first."""
    found: dict[UUID, list[SiteAgent]] = {site: [] for site in sites}
    for row in await reading.execute(_OF_SITES, {"sites": sites}):
        found[row.site_id].append(_agent(row))
    return found


async def read_agent(reading: Reading, agent_id: UUID) -> SiteAgent:
    """One agent. Raises `NotFound`."""
    row = (await reading.execute(_READ, {"id": agent_id})).first()
    if row is None:
        raise NotFound(f"there is no agent {agent_id}")
    return _agent(row)


async def lock_agent(tx: Transaction, agent_id: UUID, site_id: UUID | None = None) -> SiteAgent:
    """One agent, of this site if it is given, locked after its site. Raises `NotFound`."""
    row = (await tx.execute(_LOCK, {"id": agent_id})).first()
    if row is None or site_id not in (None, row.site_id):
        raise NotFound(f"there is no agent {agent_id}" + ("" if site_id is None else f" of site {site_id}"))
    return _agent(row)


async def lock_agent_of_name(tx: Transaction, site_id: UUID, name: str) -> SiteAgent | None:
    """The agent of a locked site with this name, locked."""
    row = (await tx.execute(_OF_NAME, {"site_id": site_id, "name": name})).first()
    return None if row is None else _agent(row)


async def insert_agent(tx: Transaction, site_id: UUID, name: str) -> UUID:
    """A new agent of a locked site, whose name is free."""
    made: UUID = (await tx.execute(_INSERT, {"site_id": site_id, "name": name})).scalar_one()
    return made


async def register_again(tx: Transaction, agent_id: UUID) -> None:
    """A revoked agent, locked, may enrol again."""
    await tx.execute(_REGISTER, {"id": agent_id})


async def count_agents(tx: Transaction, site_id: UUID) -> int:
    """Agents of a locked site, revoked ones included."""
    found: int = (await tx.execute(_COUNT, {"site_id": site_id})).scalar_one()
    return found


async def retire_agent(tx: Transaction, agent_id: UUID) -> None:
    """The locked agent is revoked: its unused tokens and what was sealed to it are deleted."""
    await tx.execute(_RETIRE, {"id": agent_id})
    await tx.execute(_FORGET_TOKENS, {"id": agent_id})
    await tx.execute(_FORGET_SEALED, {"id": agent_id})


async def suspend_agent(tx: Transaction, agent_id: UUID) -> str:
    """Every call of the locked agent is refused until it enrols again. Return its name."""
    name: str = (await tx.execute(_SUSPEND, {"id": agent_id})).scalar_one()
    return name


async def note_seen(tx: Transaction, agent_id: UUID, version: str) -> None:
    """The locked agent was heard of."""
    await tx.execute(_SEEN, {"id": agent_id, "version": version})


async def take_sealing_key(tx: Transaction, agent: SiteAgent, key: bytes) -> bool:
    """Keep the locked agent's sealing key: the first of each enrolment. False if it has another one since it enrolled.

    What was sealed to the key of an earlier enrolment is deleted: it opens no more.
    """
    if agent.sealing_key == key:
        return True
    epoch = (await tx.execute(_SEALING_EPOCH, {"id": agent.id})).scalar()
    if agent.sealing_key is not None and epoch == agent.epoch:
        return False
    await tx.execute(_FORGET_SEALED, {"id": agent.id})
    await tx.execute(_SET_SEALING_KEY, {"id": agent.id, "key": key})
    return True


async def sealing_keys(reading: Reading, site_id: UUID) -> dict[UUID, bytes]:
    """The sealing keys of the agents of a site to which passwords are sealed: active ones without a conflict."""
    return {row.id: bytes(row.sealing_key) for row in await reading.execute(_SEALING_KEYS, {"site_id": site_id})}


async def record_agent_request(
    tx: Transaction, agent_id: UUID, epoch: int, *,
    predecessor: str | None, key_sha256: bytes, csr_pem: str, request_id: str,
) -> UUID:  # fmt: skip
    """The issuer may sign the request from the commit on. The caller has locked and authenticated the agent."""
    values = {
        "agent_id": agent_id, "epoch": epoch, "predecessor": predecessor, "key_sha256": key_sha256, "csr_pem": csr_pem,
        "request_id": request_id,
    }  # fmt: skip
    made: UUID = (await tx.execute(_RECORD_REQUEST, values)).scalar_one()
    return made


async def read_request_to_sign(tx: Transaction, request: UUID) -> AgentRequest | None:
    """The request, read under its agent's lock; None if it has been decided meanwhile."""
    row = (await tx.execute(_TO_SIGN, {"id": request})).first()
    return None if row is None else AgentRequest(**row._mapping)
