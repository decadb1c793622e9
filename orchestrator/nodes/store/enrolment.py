"""One-time enrolment tokens: stored hashed, judged by the database's clock under the node's lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.database.calls import FunctionCall
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.store.holders import Holder

NOT_VALID = "this enrolment token is not valid here; ask an operator for a new one"
_INSERT = """
insert into enrolment_tokens (node_id, token_hash, hardware_id, created_by, expires_at)
values (:node_id, :token_hash, :hardware_id, :created_by,
        clock_timestamp() + make_interval(secs => cast(:valid_seconds as float8)))
returning expires_at
"""
_FORGET = """
delete from enrolment_tokens where node_id = :node_id and expires_at < clock_timestamp() - interval '1 day'
"""
# A node that has been another machine before takes a new one only by a token that names it.
_CONSUME = """
update enrolment_tokens t set used_at = clock_timestamp()
from nodes n
where t.token_hash = :token_hash and n.id = t.node_id and n.id = :node_id and n.state <> 'retired'
  and t.used_at is null and t.expires_at > clock_timestamp()
  and (t.hardware_id = :hardware_id
       or t.hardware_id is null and (n.hardware_id is null or n.hardware_id = :hardware_id))
returning t.id
"""
_LOCK = """
select id from nodes where id = (select node_id from enrolment_tokens where token_hash = :token_hash) for no key update
"""
_KNOWN = "select exists (select from enrolment_tokens where token_hash = %(token_hash)s)"
_STATE = """
select case when t.used_at is null then 'unused' else 'used' end
from enrolment_tokens t join nodes n on n.id = t.node_id
where t.token_hash = :token_hash and n.id = :node_id and n.state <> 'retired' and t.expires_at > clock_timestamp()
  and (t.hardware_id = :hardware_id
       or t.hardware_id is null and (n.hardware_id is null or n.hardware_id = :hardware_id))
"""
# The key is the requester's proof that it is the one that was answered before; the answer may have been lost.
_RECORDED = """
select r.node_epoch as epoch, r.id from enrolment_tokens t join nodes n on n.id = t.node_id
join certificate_requests r on r.node_id = n.id and r.node_epoch = n.epoch and r.key_sha256 = :key_sha256
left join node_certificates c on c.serial = r.serial
where t.token_hash = :token_hash and n.id = :node_id and n.state <> 'retired' and n.hardware_id = :hardware_id
  and t.used_at is not null and t.expires_at > clock_timestamp()
  and n.identity_conflict_at is null and r.refusal is null and c.revoked_at is null and r.predecessor is null
"""
_ENROL = """
update nodes set hardware_id = :hardware_id, enrolled_at = clock_timestamp(), identity_conflict_at = null,
    -- Above what it had in the lost interval of a restore.
    epoch = epoch + 1 + 1048576 * (
        select count(*) from restores r where r.begun_at > coalesce(nodes.enrolled_at, nodes.created_at)),
    state = case when state = 'registered' then 'active' else state end, row_version = row_version + 1
where id = :node_id
returning name, epoch, state
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The epoch of an enrolment, and its request for a certificate."""

    epoch: int
    request: UUID


async def insert_token(
    tx: Transaction,
    *,
    node_id: UUID,
    token_hash: bytes,
    hardware_id: str | None,
    created_by: UUID,
    valid_seconds: float,
    holder: Holder = Holder.NODE,
) -> datetime:
    """A token of a node that the caller has locked; answers when it ends. Tokens that ended long ago are forgotten."""
    await tx.execute(holder.sql(_FORGET), {"node_id": node_id})
    values = {"node_id": node_id, "token_hash": token_hash, "hardware_id": hardware_id, "created_by": created_by}
    ends: datetime = (await tx.execute(holder.sql(_INSERT), {**values, "valid_seconds": valid_seconds})).scalar_one()
    return ends


async def lock_node_of_token(tx: Transaction, token_hash: bytes, holder: Holder = Holder.NODE) -> UUID | None:
    """The node that a token is for, locked; None for an unknown token. Whether it still counts is asked after this."""
    row = (await tx.execute(holder.sql(_LOCK), {"token_hash": token_hash})).first()
    return None if row is None else row.id


async def is_token_known(call: FunctionCall, token_hash: bytes, holder: Holder = Holder.NODE) -> bool:
    """Whether there is a token with this SHA-256, used or over as it may be."""
    return bool(await call.value(holder.sql(_KNOWN), {"token_hash": token_hash}))


async def token_state(tx: Transaction, node_id: UUID, token_hash: bytes, hardware_id: str) -> str | None:
    """`unused`, or `used`, under the node's lock; None if the token is over, or bound to other hardware."""
    values = {"node_id": node_id, "token_hash": token_hash, "hardware_id": hardware_id}
    state: str | None = (await tx.execute(_STATE, values)).scalar()
    return state


async def consume_token(
    tx: Transaction, node_id: UUID, token_hash: bytes, hardware_id: str, holder: Holder = Holder.NODE
) -> bool:
    """Use the token up, under the node's lock. False if it is used, over, or bound to other hardware."""
    values = {"node_id": node_id, "token_hash": token_hash, "hardware_id": hardware_id}
    return (await tx.execute(holder.sql(_CONSUME), values)).first() is not None


async def recorded_before(
    tx: Transaction, node_id: UUID, token_hash: bytes, hardware_id: str, key_sha256: bytes,
    holder: Holder = Holder.NODE,
) -> Recorded | None:  # fmt: skip
    """What was recorded if the node's epoch began with this token and this key, and both still count; under its lock."""
    values = {"node_id": node_id, "token_hash": token_hash, "hardware_id": hardware_id, "key_sha256": key_sha256}
    row = (await tx.execute(holder.sql(_RECORDED), values)).first()
    return None if row is None else Recorded(row.epoch, row.id)


async def enrol_node(
    tx: Transaction, node_id: UUID, hardware_id: str, holder: Holder = Holder.NODE
) -> tuple[str, int, str]:
    """The node begins its next epoch on this hardware; answers name, epoch and state."""
    row = (await tx.execute(holder.sql(_ENROL), {"node_id": node_id, "hardware_id": hardware_id})).one()
    return row.name, row.epoch, row.state
