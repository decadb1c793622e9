"""SQL of BMCs, and of their passwords, which are sealed: nothing here can read one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import NotFound


@dataclass(frozen=True, slots=True)
class Bmc:
    """A BMC as operators see it: nothing sealed, but to which recipients the present password is."""

    node_id: UUID
    site_id: UUID
    url: str
    certificate_sha256: bytes
    username: str
    system_id: str | None
    generation: int
    pending_generation: int | None
    changed_at: datetime
    changed_by: str
    power_state: str | None
    inventory: JsonObject | None
    looked_at: datetime | None
    answered_at: datetime | None
    silent_because: str | None
    rotates_at_release: bool
    console_host_key: str | None
    console_shared: bool
    recipients: list[UUID]


@dataclass(frozen=True, slots=True)
class Address:
    """How a BMC is reached, and as which user; the certificate is the only one that is trusted. `rotates_at_release`: whether a
    release rotates the password; None: as it is, and true for a new BMC. `console_host_key`, `console_shared`: of its serial
    console; None: as it is, and none for a new BMC; an empty key: none."""

    site_id: UUID
    url: str
    certificate_sha256: bytes
    username: str
    system_id: str | None
    rotates_at_release: bool | None = None
    console_host_key: str | None = None
    console_shared: bool | None = None


_READ = """
select b.node_id, b.site_id, b.url, b.certificate_sha256, b.username, b.system_id, b.generation, b.pending_generation,
       b.changed_at, b.changed_by, b.power_state, b.inventory, b.looked_at, b.answered_at, b.silent_because,
       b.rotates_at_release, b.console_host_key, b.console_shared,
       array(select c.recipient from bmc_credentials c where c.node_id = b.node_id and c.generation = b.generation
             order by c.recipient) as recipients
from node_bmcs b
 where b.node_id = :node_id
"""
_LOCK = "select from node_bmcs where node_id = :node_id for no key update"
_LIST = """
select b.node_id, b.site_id, b.url, b.certificate_sha256, b.username, b.system_id, b.generation, b.pending_generation,
       b.changed_at, b.changed_by, b.power_state, b.inventory, b.looked_at, b.answered_at, b.silent_because,
       b.rotates_at_release, b.console_host_key, b.console_shared,
       array(select c.recipient from bmc_credentials c where c.node_id = b.node_id and c.generation = b.generation
             order by c.recipient) as recipients
from node_bmcs b
 where b.node_id > :after order by b.node_id limit :limit
"""
_LIST_OF_SITE = """
select b.node_id, b.site_id, b.url, b.certificate_sha256, b.username, b.system_id, b.generation, b.pending_generation,
       b.changed_at, b.changed_by, b.power_state, b.inventory, b.looked_at, b.answered_at, b.silent_because,
       b.rotates_at_release, b.console_host_key, b.console_shared,
       array(select c.recipient from bmc_credentials c where c.node_id = b.node_id and c.generation = b.generation
             order by c.recipient) as recipients
from node_bmcs b
 where b.site_id = :site_id and b.node_id > :after order by b.node_id limit :limit
"""
_PUT = """
insert into node_bmcs as b (node_id, site_id, url, certificate_sha256, username, system_id, generation, changed_by,
                            rotates_at_release, console_host_key, console_shared)
values (:node_id, :site_id, :url, :certificate_sha256, :username, :system_id, :generation, :by,
        coalesce(cast(:rotates_at_release as boolean), true), nullif(cast(:console_host_key as text), ''),
        coalesce(cast(:console_shared as boolean), false))
on conflict (node_id) do update set site_id = excluded.site_id, url = excluded.url,
    certificate_sha256 = excluded.certificate_sha256, username = excluded.username, system_id = excluded.system_id,
    generation = excluded.generation, pending_generation = case when excluded.generation = b.generation
        then b.pending_generation end,
    changed_at = clock_timestamp(), changed_by = excluded.changed_by, row_version = b.row_version + 1,
    power_state = case when (b.url, b.system_id) is not distinct from (excluded.url, excluded.system_id)
        then b.power_state end,
    inventory = case when (b.url, b.system_id) is not distinct from (excluded.url, excluded.system_id) then b.inventory end,
    looked_at = case when (b.url, b.system_id) is not distinct from (excluded.url, excluded.system_id) then b.looked_at end,
    answered_at = case when (b.url, b.certificate_sha256) = (excluded.url, excluded.certificate_sha256) then b.answered_at end,
    silent_because = null, rotates_at_release = coalesce(cast(:rotates_at_release as boolean), b.rotates_at_release),
    console_host_key = nullif(coalesce(cast(:console_host_key as text), b.console_host_key), ''),
    console_shared = coalesce(cast(:console_shared as boolean), b.console_shared)
"""
_DELETE = (
    "delete from bmc_tasks where node_id = :node_id",
    "delete from bmc_credentials where node_id = :node_id",
    "delete from node_bmcs where node_id = :node_id",
)
_FORGET_OTHERS = "delete from bmc_credentials where node_id = :node_id and generation <> :generation"
_STORE = """
insert into bmc_credentials (node_id, generation, recipient, sealed)
select :node_id, :generation, sealed.recipient, sealed.text
from unnest(cast(:recipients as uuid[]), cast(:texts as text[])) sealed(recipient, text)
on conflict (node_id, generation, recipient) do nothing
"""
_SEALED = """
select generation, recipient, sealed from bmc_credentials where node_id = :node_id order by generation, recipient
"""
_SET_PENDING = (
    "update node_bmcs set pending_generation = :generation, row_version = row_version + 1 where node_id = :node_id"
)
_PROMOTE = """
update node_bmcs set generation = :generation, pending_generation = null, row_version = row_version + 1
where node_id = :node_id and pending_generation = :generation
"""
_NOTE_LOOK = """
update node_bmcs set power_state = :power_state, inventory = cast(:inventory as jsonb), looked_at = clock_timestamp(),
    row_version = row_version + 1
where node_id = :node_id
"""
_NOTE_POWER = """
update node_bmcs set power_state = :power_state, row_version = row_version + 1
where node_id = :node_id and looked_at is not null
"""


def _bmc(row: Any) -> Bmc:
    return Bmc(**row._mapping)


async def read_bmc(reading: Reading, node_id: UUID) -> Bmc:
    """The BMC of a node. Raises `NotFound`."""
    row = (await reading.execute(_READ, {"node_id": node_id})).first()
    if row is None:
        raise NotFound(f"node {node_id} has no BMC, or does not exist")
    return _bmc(row)


async def lock_bmc(tx: Transaction, node_id: UUID) -> Bmc | None:
    """The BMC of a node, locked after the node and the site; None if it has none."""
    if (await tx.execute(_LOCK, {"node_id": node_id})).first() is None:
        return None
    return await read_bmc(tx, node_id)


async def list_bmcs(reading: Reading, site_id: UUID | None, after: UUID, limit: int) -> list[Bmc]:
    """Up to `limit` BMCs of nodes after this one, of this site if it is given."""
    statement = _LIST if site_id is None else _LIST_OF_SITE
    values = {"after": after, "limit": limit, **({} if site_id is None else {"site_id": site_id})}
    return [_bmc(row) for row in await reading.execute(statement, values)]


async def put_bmc(tx: Transaction, node_id: UUID, address: Address, generation: int, by: str) -> None:
    """The locked node has this BMC. What was read at another address is forgotten; another generation ends a pending one."""
    values = {
        "node_id": node_id, "site_id": address.site_id, "url": address.url, "username": address.username,
        "certificate_sha256": address.certificate_sha256, "system_id": address.system_id, "generation": generation,
        "by": by, "rotates_at_release": address.rotates_at_release, "console_host_key": address.console_host_key,
        "console_shared": address.console_shared,
    }  # fmt: skip
    await tx.execute(_PUT, values)


async def delete_bmc(tx: Transaction, node_id: UUID) -> None:
    """The locked node has no BMC any more: its sealed passwords and its tasks are deleted with it."""
    for statement in _DELETE:
        await tx.execute(statement, {"node_id": node_id})


async def store_sealed(tx: Transaction, node_id: UUID, generation: int, sealed: Mapping[UUID, str]) -> None:
    """Store a password for recipients that have none of this generation; what is stored stays."""
    values = {"node_id": node_id, "generation": generation, "recipients": list(sealed), "texts": list(sealed.values())}
    await tx.execute(_STORE, values)


async def forget_other_passwords(tx: Transaction, node_id: UUID, generation: int) -> None:
    """Delete the sealed passwords of all other generations of a locked BMC."""
    await tx.execute(_FORGET_OTHERS, {"node_id": node_id, "generation": generation})


async def sealed_passwords(reading: Reading, node_id: UUID) -> dict[int, dict[UUID, str]]:
    """What is stored for each generation and recipient."""
    found: dict[int, dict[UUID, str]] = {}
    for row in await reading.execute(_SEALED, {"node_id": node_id}):
        found.setdefault(row.generation, {})[row.recipient] = row.sealed
    return found


async def set_pending(tx: Transaction, node_id: UUID, generation: int) -> None:
    """The locked BMC may receive this generation from the commit on."""
    await tx.execute(_SET_PENDING, {"node_id": node_id, "generation": generation})


async def promote(tx: Transaction, node_id: UUID, generation: int) -> None:
    """The locked BMC accepts the pending generation: it is the present one, and no other is kept."""
    await tx.execute(_PROMOTE, {"node_id": node_id, "generation": generation})
    await forget_other_passwords(tx, node_id, generation)


async def note_look(tx: Transaction, node_id: UUID, power_state: str, inventory: JsonObject) -> None:
    """What an agent read at the locked BMC now."""
    values = {"node_id": node_id, "power_state": power_state, "inventory": json.dumps(inventory)}
    await tx.execute(_NOTE_LOOK, values)


async def note_power(tx: Transaction, node_id: UUID, power_state: str) -> None:
    """The power state that an agent read at the locked BMC now; before the first look it is kept with the task alone."""
    await tx.execute(_NOTE_POWER, {"node_id": node_id, "power_state": power_state})
