"""SQL of wipe certificates: issued in the transaction that frees the units, one chain per node."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.wiping.statement import OpenedStatement, StatementEnvelope
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.tasks.signing import TaskSigner
from orchestrator.wipes.certificate import (
    COUNTERSIGNATURE_PAYLOAD_TYPE,
    FORMAT,
    CountersignatureEnvelope,
    Countersigned,
    MachineFindings,
    countersigned_payload,
    statement_digest,
)

_IS_KNOWN = """
select exists (select from node_certificates
               where serial = :serial and node_id = :node_id and revoked_at is null) as known
"""


async def is_known_certificate(reading: Reading, node_id: UUID, serial: int) -> bool:
    """Whether the issuer gave this node a certificate of this serial, and it is not revoked."""
    row = (await reading.execute(_IS_KNOWN, {"serial": format(serial, "x"), "node_id": node_id})).one()
    return bool(row.known)


# Of the tasks that give an allocation its devices the newest counts: a rebuild has wiped what it replaced.
_DEVICES = """
select t.result -> 'evidence' -> 'devices' as devices from node_tasks t
where t.allocation_id = :allocation_id and t.node_id = :node_id and t.state = 'completed'
  and t.type in ('slice.vm_provision', 'allocation.provision_user', 'allocation.rebuild')
  and jsonb_typeof(t.result -> 'evidence' -> 'devices') = 'array'
order by t.fence desc limit 1
"""


async def read_devices(reading: Reading, allocation_id: UUID, node_id: UUID) -> list[str]:
    """Names of the devices that the node gave the allocation; none if it named none."""
    row = (await reading.execute(_DEVICES, {"allocation_id": allocation_id, "node_id": node_id})).first()
    return [] if row is None else [device for device in row.devices if isinstance(device, str)]


OF_FIRMWARE: Final = "firmware_"
"""How the codes of findings about firmware begin."""
# The inspection of an adopted machine belongs to its tenancy: it shows what the tenant has left.
_FINDINGS = """
select array(select f.finding ->> 'code' from jsonb_array_elements(r.findings) f(finding)) as codes,
       a.adoption is null and t.result -> 'firmware' -> 0 is not null
           and (m.firmware -> 0 is not null or m.report #>> '{topology,firmware,bios_version}' is not null) as is_compared
from deploy_runs r
left join allocations a on a.id = r.allocation_id
left join deploy_tasks t on t.node_id = r.node_id and t.id = r.deploy_task_id
left join node_machines m on m.node_id = r.node_id
where r.node_id = :node_id and r.task_id = :task_id and r.kind = 'wipe' and r.outcome = 'completed'
order by r.id desc limit 1
"""


async def read_findings(reading: Reading, node_id: UUID, task_id: UUID) -> MachineFindings:
    """What was found on the machine by the run that performed this task of a release."""
    row = (await reading.execute(_FINDINGS, {"node_id": node_id, "task_id": task_id})).first()
    codes = [] if row is None else sorted(set(row.codes))
    if any(code.startswith(OF_FIRMWARE) for code in codes):
        return MachineFindings(firmware="objected", findings=codes)
    is_compared = row is not None and row.is_compared
    return MachineFindings(firmware="no_objection" if is_compared else "not_compared", findings=codes)


@dataclass(frozen=True, slots=True)
class Link:
    """The place of the next certificate in its node's chain."""

    number: int
    previous: bytes | None


_READ_LINK = "select number, sha256 from wipe_chains where node_id = :node_id"
_ISSUE = """
with key_set as (
    insert into wipe_key_sets (sha256, envelope)
    select :key_set_sha256, cast(:key_set as jsonb) where cast(:key_set_sha256 as bytea) is not null
    on conflict do nothing
), head as (
    insert into wipe_chains (node_id, number, sha256) values (:node_id, :number, :sha256)
    on conflict (node_id) do update set number = excluded.number, sha256 = excluded.sha256
    where wipe_chains.number = excluded.number - 1
    returning node_id
)
insert into wipe_certificates (allocation_id, tenant_id, node_id, number, sha256, previous_sha256, statement,
                               countersignature, key_set_sha256)
select :allocation_id, :tenant_id, node_id, :number, :sha256, :previous, cast(:statement as jsonb),
       cast(:countersignature as jsonb), :key_set_sha256
from head
"""


async def issue_certificate(
    tx: Transaction,
    signer: TaskSigner,
    envelope: StatementEnvelope,
    opened: OpenedStatement,
    tenant_id: UUID,
    clock: datetime,
    machine: MachineFindings | None,
) -> str:
    """Countersign and store the statement as the next of its node's chain; return the digest. The node is locked."""
    found = opened.predicate
    head = (await tx.execute(_READ_LINK, {"node_id": found.node_id})).first()
    link = Link(1, None) if head is None else Link(head.number + 1, bytes(head.sha256))
    payload = countersigned_payload(
        Countersigned(
            statement_sha256=statement_digest(opened),
            allocation_id=found.allocation_id,
            node_id=found.node_id,
            number=link.number,
            previous_sha256=None if link.previous is None else link.previous.hex(),
            countersigned_at=clock,
            machine=machine,
        )
    )
    signature = signer.countersign(COUNTERSIGNATURE_PAYLOAD_TYPE, payload)
    countersignature = CountersignatureEnvelope(payload=base64.b64encode(payload).decode(), signatures=[signature])
    digest = hashlib.sha256(payload).digest()
    key_set, key_set_digest = _key_set(signer)
    values = {
        "allocation_id": found.allocation_id, "tenant_id": tenant_id, "node_id": found.node_id, "number": link.number,
        "sha256": digest, "previous": link.previous, "statement": envelope.model_dump_json(),
        "countersignature": countersignature.model_dump_json(), "key_set": key_set, "key_set_sha256": key_set_digest,
    }  # fmt: skip
    issued = await tx.execute(_ISSUE, values)
    assert issued.rowcount == 1, "the chain of a locked node does not move"
    return digest.hex()


def _key_set(signer: TaskSigner) -> tuple[str | None, bytes | None]:
    """The key set that verifies the signer, as JSON text, and its digest."""
    carried = signer.key_set()
    if carried is None:
        return None, None
    envelope = json.dumps(carried.envelope, sort_keys=True)
    return envelope, hashlib.sha256(envelope.encode()).digest()


_READ = """
select w.statement, w.countersignature, k.envelope as key_set
from wipe_certificates w left join wipe_key_sets k on k.sha256 = w.key_set_sha256
where w.allocation_id = :allocation_id
"""


async def read_certificate_document(reading: Reading, allocation_id: UUID) -> JsonObject | None:
    """The document of an allocation's certificate (`WipeCertificate`), or None."""
    row = (await reading.execute(_READ, {"allocation_id": allocation_id})).first()
    if row is None:
        return None
    return {
        "format": FORMAT,
        "statement": row.statement,
        "countersignature": row.countersignature,
        "key_set": row.key_set,
    }
