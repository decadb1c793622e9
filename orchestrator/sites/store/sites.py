"""SQL of sites and their leases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import AlreadyExists, NotFound
from orchestrator.sites.rules import Lease


@dataclass(frozen=True, slots=True)
class Site:
    """A site as operators see it. `machines`: BMCs that belong to it; the lease is None if no process holds it now."""

    id: UUID
    name: str
    recovery_key: bytes
    created_at: datetime
    machines: int
    lease_fence: int
    lease_agent: UUID | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class SiteCensus:
    """A site in numbers: whether its lease is held, its BMCs, and their open tasks."""

    name: str
    is_held: bool
    machines: int
    open_tasks: int


_CENSUS = """
select s.name, coalesce(s.lease_until > clock_timestamp(), false) as is_held,
       (select count(*) from node_bmcs b where b.site_id = s.id) as machines, coalesce(t.open_tasks, 0) as open_tasks
from sites s left join (select site_id, count(*) as open_tasks from bmc_tasks where ended_at is null group by site_id) t
     on t.site_id = s.id
order by s.name limit 1000
"""
_READ = """
select s.id, s.name, s.recovery_key, s.created_at, s.lease_fence,
       (select count(*) from node_bmcs b where b.site_id = s.id) as machines,
       case when s.lease_until > clock_timestamp() then s.lease_agent end as lease_agent,
       case when s.lease_until > clock_timestamp() then s.lease_until end as lease_until
from sites s
 where s.id = :id
"""
_READ_BY_NAME = """
select s.id, s.name, s.recovery_key, s.created_at, s.lease_fence,
       (select count(*) from node_bmcs b where b.site_id = s.id) as machines,
       case when s.lease_until > clock_timestamp() then s.lease_agent end as lease_agent,
       case when s.lease_until > clock_timestamp() then s.lease_until end as lease_until
from sites s
 where s.name = :name
"""
_LIST = """
select s.id, s.name, s.recovery_key, s.created_at, s.lease_fence,
       (select count(*) from node_bmcs b where b.site_id = s.id) as machines,
       case when s.lease_until > clock_timestamp() then s.lease_agent end as lease_agent,
       case when s.lease_until > clock_timestamp() then s.lease_until end as lease_until
from sites s
 where s.id > :after order by s.id limit :limit
"""
_INSERT = """
insert into sites (name, recovery_key) values (:name, :recovery_key) on conflict (name) do nothing returning id
"""
_LOCK = "select recovery_key from sites where id = :id for no key update"
_LOCK_LEASE = """
select s.id, s.lease_fence, s.lease_agent, s.lease_run, s.lease_until
from sites s where s.id = (select a.site_id from site_agents a where a.id = :agent_id) for no key update of s
"""
_SHARE_LEASE = """
select s.id, s.lease_fence, s.lease_agent, s.lease_run, s.lease_until
from sites s where s.id = (select a.site_id from site_agents a where a.id = :agent_id) for share of s
"""
_HOLD = """
update sites set lease_fence = :fence, lease_agent = :agent_id, lease_run = :run_id,
    lease_until = clock_timestamp() + make_interval(secs => :seconds) where id = :id
"""
_GIVE_UP = "update sites set lease_agent = null, lease_run = null, lease_until = null where id = :id"
_COUNT = """
select (select count(*) from site_agents where site_id = :id and state <> 'retired') as agents,
       (select count(*) from node_bmcs where site_id = :id) as machines
"""
_DELETE = (
    """delete from site_agent_certificate_requests
    where agent_id in (select id from site_agents where site_id = :id)""",
    "delete from site_agent_certificates where agent_id in (select id from site_agents where site_id = :id)",
    "delete from site_agent_tokens where agent_id in (select id from site_agents where site_id = :id)",
    "delete from site_agents where site_id = :id",
    "delete from sites where id = :id",
)


def _no_site(site: UUID | str) -> NotFound:
    return NotFound(f"there is no site {site}")


async def insert_site(tx: Transaction, name: str, recovery_key: bytes) -> UUID:
    """A new site. Raises `AlreadyExists` if the name is taken."""
    made: UUID | None = (await tx.execute(_INSERT, {"name": name, "recovery_key": recovery_key})).scalar()
    if made is None:
        raise AlreadyExists(f"there is already a site called {name!r}")
    return made


async def read_site(reading: Reading, site: UUID | str) -> Site:
    """One site, by id or name. Raises `NotFound`."""
    found = (
        await reading.execute(_READ, {"id": site})
        if isinstance(site, UUID)
        else await reading.execute(_READ_BY_NAME, {"name": site})
    ).first()
    if found is None:
        raise _no_site(site)
    return Site(**found._mapping)


async def list_sites(reading: Reading, after: UUID, limit: int) -> list[Site]:
    """Up to `limit` sites after this id."""
    return [Site(**row._mapping) for row in await reading.execute(_LIST, {"after": after, "limit": limit})]


async def take_census(reading: Reading) -> list[SiteCensus]:
    """The first thousand sites, by name."""
    return [SiteCensus(**row._mapping) for row in await reading.execute(_CENSUS, {})]


async def lock_site(tx: Transaction, site_id: UUID) -> bytes:
    """Lock the site, after its nodes; return its recovery key. Raises `NotFound`."""
    row = (await tx.execute(_LOCK, {"id": site_id})).first()
    if row is None:
        raise _no_site(site_id)
    return bytes(row.recovery_key)


async def count_users(tx: Transaction, site_id: UUID) -> tuple[int, int]:
    """Agents of the locked site that are not revoked, and its BMCs."""
    row = (await tx.execute(_COUNT, {"id": site_id})).one()
    return row.agents, row.machines


async def delete_site(tx: Transaction, site_id: UUID) -> None:
    """Delete the locked site, with its revoked agents, which own nothing any more."""
    for statement in _DELETE:
        await tx.execute(statement, {"id": site_id})


async def lock_lease(tx: Transaction, agent_id: UUID) -> tuple[UUID, Lease]:
    """The site of an agent, locked, and its lease."""
    return await _lease(tx, _LOCK_LEASE, agent_id)


async def share_lease(tx: Transaction, agent_id: UUID) -> tuple[UUID, Lease]:
    """The site of an agent, and its lease, which stays so until the transaction ends; others may share it."""
    return await _lease(tx, _SHARE_LEASE, agent_id)


async def _lease(tx: Transaction, statement: str, agent_id: UUID) -> tuple[UUID, Lease]:
    row = (await tx.execute(statement, {"agent_id": agent_id})).one()
    return row.id, Lease(row.lease_fence, row.lease_agent, row.lease_run, row.lease_until)


async def hold_lease(tx: Transaction, site_id: UUID, agent_id: UUID, run_id: UUID, fence: int, seconds: float) -> None:
    """The process holds the locked site's lease for `seconds` from now, under this fence."""
    values = {"id": site_id, "agent_id": agent_id, "run_id": run_id, "fence": fence, "seconds": seconds}
    await tx.execute(_HOLD, values)


async def give_up_lease(tx: Transaction, site_id: UUID) -> None:
    """No process holds the locked site's lease; its fence stays, and the next holder raises it."""
    await tx.execute(_GIVE_UP, {"id": site_id})
