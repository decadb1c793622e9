"""SQL of deploy systems. Every change holds the lock of the node's row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_enrolment import DeployHello
from node_agent.wire.deploy_tasks import FirmwareVersion, MetalInspectReport
from orchestrator.database.calls import FunctionCall
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.attestation.evidence import Evidence
from orchestrator.nodes.certificates import IssuedCertificate
from orchestrator.nodes.deploy_systems.rules import HISTORY_MAX, NodeUse, Permission
from orchestrator.nodes.deploy_systems.tables import deploy_systems
from orchestrator.nodes.states import NodeState

_USE = """
select n.state, n.shape, n.epoch, u.claims, u.occupied,
       coalesce((select a.claim_id from claims c join allocations a on a.id = c.owner_id
                 where c.id = cast(:claim_id as bigint) and c.owner_kind = 'allocation'), cast(:claim_id as bigint)) as named,
       (select count(*) from node_orphans o where o.node_id = n.id and o.state <> 'destroyed') as orphans
from nodes n cross join lateral (
    select coalesce(jsonb_object_agg(c.id, c.owner_kind), '{}') as claims,
           coalesce(array_agg(c.id) filter (where c.occupied), '{}') as occupied
    from claims c
    where c.node_id = n.id and c.closed_at is null and (c.occupied or lower(c.during) <= clock_timestamp())
) u
where n.id = :node_id
"""
_NEXT_EPOCH = "select coalesce(max(deploy_epoch), 0) + 1 from deploy_systems where node_id = :node_id"
_END = """
update deploy_systems set ended_at = clock_timestamp(), ended_by = :ended_by where node_id = :node_id and ended_at is null
returning deploy_epoch
"""
_SUPERSEDE_TASKS = """
update node_tasks set state = 'superseded', finished_at = clock_timestamp(),
    envelope = case when type in ('metal.deploy', 'metal.rescue') then '{}' else envelope end
where node_id = :node_id and deploy_epoch > 0 and state in ('queued', 'dispatched')
"""
_END_TASKS = """
update deploy_tasks set ended_at = clock_timestamp(), outcome = 'not_run', failure = :why, waits_for = null,
    waits_since = null, waits_until = null, parameters = parameters - 'config_drive' - 'ssh_public_keys'
where node_id = :node_id and ended_at is null
"""
_INSERT = """
insert into deploy_systems (node_id, deploy_epoch, token_hash, smbios_uuid, macs, tpm_required, claim_id, certificate_seconds,
                            permitted_by, expires_at)
values (:node_id, :deploy_epoch, :token_hash, :smbios_uuid, :macs, :tpm_required, :claim_id, :certificate_seconds, :by,
        clock_timestamp() + make_interval(secs => cast(:valid_seconds as float8)))
returning expires_at
"""
_FORGET = """
delete from deploy_systems where node_id = :node_id and deploy_epoch <= :deploy_epoch - cast(:history_max as bigint)
"""
_PERMISSION = select(
    *(
        func.clock_timestamp().label("clock") if name == "clock" else deploy_systems.c[name]
        for name in Permission.__slots__
    )
)
_COUNT_REFUSAL = """
update deploy_systems set refusals = refusals + 1 where token_hash = :token_hash and refusals < :most returning refusals
"""
_USE_UP = """
update deploy_systems set used_at = clock_timestamp(), key_sha256 = :key_sha256, csr_pem = :csr_pem, request_id = :request_id,
    attestation_secret = :secret, quote = :quote, quote_signature = :signature
where id = :id and used_at is null and ended_at is null and expires_at > clock_timestamp()
returning id
"""
_DECISION = (
    "select pem, refusal, ended_by, not_after, clock_timestamp() as server_time from deploy_systems where id = :id"
)
_PENDING = """
select id, node_id from deploy_systems
where used_at is not null and serial is null and refusal is null and ended_at is null order by id limit :most
"""
_TO_SIGN = """
select d.id, d.node_id, d.deploy_epoch, d.key_sha256, d.csr_pem, d.request_id, d.attestation_secret, d.quote, d.quote_signature,
       d.certificate_seconds, d.tpm_required, d.claim_id
from deploy_systems d
where d.id = :id and d.used_at is not null and d.serial is null and d.refusal is null and d.ended_at is null
"""
_SET_ISSUED = """
update deploy_systems set serial = :serial, pem = :pem, not_after = :not_after, authority_key_sha256 = :authority
where id = :id
"""
_SET_REFUSED = "update deploy_systems set refusal = :refusal where id = :id"
# One row of an index: each call of a deploy system runs it.
_STANDING = """
select d.id, d.node_id, d.deploy_epoch, d.not_after, d.ended_by, n.state,
       d.not_after <= clock_timestamp() as is_over, clock_timestamp() as server_time
from deploy_systems d join nodes n on n.id = d.node_id
where d.serial = :serial and d.node_id = :node_id and d.deploy_epoch = :deploy_epoch
"""
_HELLO = """
update deploy_systems set hello = cast(:hello as jsonb), hello_at = coalesce(hello_at, clock_timestamp())
where id = :id and ended_at is null and hello is distinct from cast(:hello as jsonb) returning hello_at
"""
_NOTE_STATEMENT = """
update deploy_systems set wipe_statement = cast(:statement as jsonb) where node_id = :node_id and deploy_epoch = :deploy_epoch
"""
_STATEMENT = "select wipe_statement from deploy_systems where node_id = :node_id and deploy_epoch = :deploy_epoch"
_MACHINE = """
select smbios_uuid, macs, report, inspected_at, firmware, bmc_firmware from node_machines where node_id = :node_id
"""
_RECORD_MACHINE = """
insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at, firmware)
values (:node_id, :smbios_uuid, :macs, cast(:report as jsonb), clock_timestamp(), cast(:firmware as jsonb))
on conflict (node_id) do update set smbios_uuid = excluded.smbios_uuid, macs = excluded.macs, report = excluded.report,
    inspected_at = excluded.inspected_at, firmware = excluded.firmware, bmc_firmware = null
"""
_NOTE_FIRMWARE = "update node_machines set firmware = cast(:firmware as jsonb) where node_id = :node_id"
_NOTE_BMC_FIRMWARE = "update node_machines set bmc_firmware = cast(:firmware as jsonb) where node_id = :node_id"


@dataclass(frozen=True, slots=True)
class Decision:
    """What the issuer has decided of a request: a certificate, a refusal, or nothing yet."""

    pem: str | None
    refusal: str | None
    ended_by: str | None
    not_after: datetime | None
    server_time: datetime


@dataclass(frozen=True, slots=True)
class DeployRequest:
    """A request for the certificate of a deploy system that no issuer has decided."""

    id: UUID
    node_id: UUID
    deploy_epoch: int
    key_sha256: bytes
    csr_pem: str
    request_id: str | None
    attestation_secret: bytes | None
    quote: bytes | None
    quote_signature: bytes | None
    certificate_seconds: int
    tpm_required: bool
    claim_id: int | None

    @property
    def evidence(self) -> Evidence | None:
        """The proof of the TPM that came with it."""
        if self.attestation_secret is None or self.quote is None or self.quote_signature is None:
            return None
        return Evidence(self.attestation_secret, self.quote, self.quote_signature)


@dataclass(frozen=True, slots=True)
class DeployStanding:
    """The permission behind the certificate of a deploy system, now."""

    id: UUID
    node_id: UUID
    deploy_epoch: int
    not_after: datetime
    ended_by: str | None
    state: NodeState
    is_over: bool
    server_time: datetime

    @property
    def why_ended(self) -> str | None:
        """Why it does not count any more; None if it does."""
        if self.ended_by is not None:
            return self.ended_by
        if self.is_over:
            return "expired"
        return "node_state" if self.state is NodeState.RETIRED else None


@dataclass(frozen=True, slots=True)
class Machine:
    """What the last inspection found. `firmware`, `bmc_firmware`: what its deploy system and the BMC reported, if they did."""

    smbios_uuid: UUID
    macs: list[str]
    report: JsonObject
    inspected_at: datetime
    firmware: list[JsonObject] | None = None
    bmc_firmware: list[JsonObject] | None = None


async def note_wipe_statement(tx: Transaction, node_id: UUID, deploy_epoch: int, statement: JsonObject) -> None:
    """Keep what the deploy system has signed about its wipe."""
    values = {"node_id": node_id, "deploy_epoch": deploy_epoch, "statement": json.dumps(statement)}
    await tx.execute(_NOTE_STATEMENT, values)


async def read_wipe_statement(reading: Reading, node_id: UUID, deploy_epoch: int | None) -> JsonObject | None:
    """What the deploy system has signed about its wipe; None if nothing, as by one of an earlier version."""
    values = {"node_id": node_id, "deploy_epoch": deploy_epoch}
    found: JsonObject | None = (await reading.execute(_STATEMENT, values)).scalar()
    return found


async def read_use(tx: Transaction, node_id: UUID, claim_id: int | None) -> NodeUse:
    """State and claims of a locked node, for what is done for this claim (None: for an operator).

    A claim of an allocation names the one that the allocation has now: a change of its end gives it another.
    """
    row = (await tx.execute(_USE, {"node_id": node_id, "claim_id": claim_id})).one()
    claims = {int(claim): kind for claim, kind in row.claims.items()}
    return NodeUse(
        NodeState(row.state), row.shape, row.epoch, claims, row.orphans, frozenset(row.occupied), row.named
    )  # fmt: skip


async def end_permission(tx: Transaction, node_id: UUID, ended_by: str) -> int | None:
    """End the open permission of a locked node and its tasks; return its deploy epoch."""
    ended: int | None = (await tx.execute(_END, {"node_id": node_id, "ended_by": ended_by})).scalar()
    if ended is not None:
        await tx.execute(_SUPERSEDE_TASKS, {"node_id": node_id})
        await tx.execute(
            _END_TASKS, {"node_id": node_id, "why": f"{ended_by}: the permission of its deploy system ended"}
        )
    return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPermission:
    """A permission that is to be given: the hash of its token, the machine that it is for, and its claim.

    `by`: the principal. `valid_seconds`: of the token; `certificate_seconds`: of the certificate that it is exchanged for.
    """

    token_hash: bytes
    smbios_uuid: UUID
    macs: list[str]
    tpm_required: bool
    claim_id: int | None
    certificate_seconds: float
    valid_seconds: float
    by: str


async def insert_permission(tx: Transaction, node_id: UUID, new: NewPermission) -> tuple[int, datetime]:
    """A permission in the next deploy epoch of a locked node that has no open one; its epoch, and the end of its token."""
    deploy_epoch: int = (await tx.execute(_NEXT_EPOCH, {"node_id": node_id})).scalar_one()
    await tx.execute(_FORGET, {"node_id": node_id, "deploy_epoch": deploy_epoch, "history_max": HISTORY_MAX})
    made = {"node_id": node_id, "deploy_epoch": deploy_epoch, **asdict(new)}
    ends: datetime = (await tx.execute(_INSERT, made)).scalar_one()
    return deploy_epoch, ends


async def is_token_known(call: FunctionCall, token_hash: bytes) -> bool:
    """Whether there is a permission with this token, used or over as it may be."""
    statement = "select exists (select from deploy_systems where token_hash = %(token_hash)s)"
    return bool(await call.value(statement, {"token_hash": token_hash}))


async def read_by_token(reading: Reading, token_hash: bytes) -> Permission | None:
    """The permission with this token."""
    row = (await reading.execute(_PERMISSION.where(deploy_systems.c.token_hash == token_hash))).first()
    return None if row is None else Permission(**row._mapping)


async def read_newest(reading: Reading, node_id: UUID) -> Permission | None:
    """The newest permission of a node."""
    newest = (
        _PERMISSION.where(deploy_systems.c.node_id == node_id).order_by(deploy_systems.c.deploy_epoch.desc()).limit(1)
    )
    row = (await reading.execute(newest)).first()
    return None if row is None else Permission(**row._mapping)


async def count_refusal(tx: Transaction, token_hash: bytes, most: int) -> bool:
    """Count a refusal of this token; whether it is among the first `most`."""
    return (await tx.execute(_COUNT_REFUSAL, {"token_hash": token_hash, "most": most})).first() is not None


async def use_up(
    tx: Transaction, permission: UUID, *, key_sha256: bytes, csr_pem: str, request_id: str, evidence: Evidence | None
) -> bool:
    """Use the token up and record the request for a certificate; False if it is used, over or ended."""
    values = {
        "id": permission, "key_sha256": key_sha256, "csr_pem": csr_pem, "request_id": request_id,
        "secret": None if evidence is None else evidence.secret, "quote": None if evidence is None else evidence.quote,
        "signature": None if evidence is None else evidence.signature,
    }  # fmt: skip
    return (await tx.execute(_USE_UP, values)).first() is not None


async def read_decision(reading: Reading, permission: UUID) -> Decision:
    """What the issuer has decided."""
    return Decision(**(await reading.execute(_DECISION, {"id": permission})).one()._mapping)


async def find_pending(reading: Reading, most: int) -> list[tuple[UUID, UUID]]:
    """The oldest requests that no issuer has decided, each with its node."""
    return [(row.id, row.node_id) for row in await reading.execute(_PENDING, {"most": most})]


async def read_request(tx: Transaction, permission: UUID) -> DeployRequest | None:
    """The request under the lock of its node; None if it is decided, or its permission has ended."""
    row = (await tx.execute(_TO_SIGN, {"id": permission})).first()
    return None if row is None else DeployRequest(**row._mapping)


async def set_issued(tx: Transaction, permission: UUID, issued: IssuedCertificate) -> None:
    """The certificate counts from the commit on."""
    values = {
        "id": permission, "serial": issued.serial, "pem": issued.pem, "not_after": issued.not_after,
        "authority": issued.authority_key_sha256,
    }  # fmt: skip
    await tx.execute(_SET_ISSUED, values)


async def set_refused(tx: Transaction, permission: UUID, refusal: str) -> None:
    """The request gets no certificate."""
    await tx.execute(_SET_REFUSED, {"id": permission, "refusal": refusal})


async def read_standing(reading: Reading, node_id: UUID, deploy_epoch: int, serial: str) -> DeployStanding | None:
    """The permission behind a verified certificate; None if it is not ours."""
    values = {"node_id": node_id, "deploy_epoch": deploy_epoch, "serial": serial}
    row = (await reading.execute(_STANDING, values)).first()
    return None if row is None else DeployStanding(**{**row._mapping, "state": NodeState(row.state)})


async def record_hello(tx: Transaction, permission: UUID, hello: DeployHello) -> datetime | None:
    """Record a hello; when the first one came, or None if this one is recorded already."""
    values = {"id": permission, "hello": hello.model_dump_json(exclude_none=True)}
    at: datetime | None = (await tx.execute(_HELLO, values)).scalar()
    return at


async def read_machine(reading: Reading, node_id: UUID) -> Machine | None:
    """What the last inspection found."""
    row = (await reading.execute(_MACHINE, {"node_id": node_id})).first()
    return None if row is None else Machine(**row._mapping)


async def record_machine(tx: Transaction, node_id: UUID, report: MetalInspectReport) -> None:
    """An inspection found this."""
    macs = sorted({nic.mac for nic in report.topology.nics or () if nic.mac is not None})
    values = {
        "node_id": node_id,
        "smbios_uuid": report.smbios_uuid,
        "macs": macs,
        # Apart from the rest: processes of the version before read the report and refuse what they do not know.
        "report": report.model_copy(update={"firmware": None}).canonical().decode(),
        "firmware": None if report.firmware is None else json.dumps([one.model_dump() for one in report.firmware]),
    }
    await tx.execute(_RECORD_MACHINE, values)


async def note_machine_firmware(tx: Transaction, node_id: UUID, firmware: Sequence[FirmwareVersion]) -> None:
    """The inspected machine of a locked node has these versions, apart from those that its BMC names."""
    values = {"node_id": node_id, "firmware": json.dumps([one.model_dump() for one in firmware])}
    await tx.execute(_NOTE_FIRMWARE, values)


async def note_bmc_firmware(tx: Transaction, node_id: UUID, firmware: Sequence[FirmwareVersion]) -> None:
    """The BMC of the inspected machine of a locked node reports these versions."""
    values = {"node_id": node_id, "firmware": json.dumps([one.model_dump() for one in firmware])}
    await tx.execute(_NOTE_BMC_FIRMWARE, values)
