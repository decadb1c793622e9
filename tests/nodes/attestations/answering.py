"""Answers to attestations on demand, made by a TPM in Python, and one round in place of worker and node."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import uuid
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from node_agent.protocol import FailureCode, ResultReport, TaskBody
from node_agent.wire.attestations import ATTEST_FEATURE, AttestationProof, AttestationReport, nonce_data
from orchestrator.nodes.attestation.queries import find_open_attestations
from orchestrator.nodes.attestation.rules import OnFailure
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.sites.commands.attestations import (
    Advanced,
    accept_attestation,
    advance_attestation,
    request_attestation,
)
from tests.allocations.driving import ADMIN, completed, failed, report, row_of
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect
from tests.api.nodes.attestation.software_tpm import SoftwareTpm, encoded, sized
from tests.discovery.topologies import beat

PCRS = [hashlib.sha256(bytes([index])).hexdigest() for index in range(8)]
SELECTION = struct.pack(">IHB", 1, 0x000B, 3) + b"\xff\0\0"
_BIND = "insert into node_tpms (node_id, ek_sha256, ek_public, ak_public) values (%s, sha256(%s), %s, %s)"


def proof(
    tpm: SoftwareTpm, nonce: bytes, pcrs: Sequence[str] = PCRS, *, quoted: Sequence[str] | None = None,
    selection: bytes = SELECTION, data: bytes | None = None,
) -> AttestationProof:  # fmt: skip
    """What a TPM with these PCRs answers. `quoted`: the PCRs that the quote covers; `data`: what it names instead."""
    digest = hashlib.sha256(b"".join(bytes.fromhex(one) for one in quoted or pcrs)).digest()
    content = struct.pack(">IH", 0xFF544347, 0x8018) + sized(b"\0\x0b" + bytes(32))
    content += sized(nonce_data(nonce) if data is None else data) + struct.pack(">QIIBQ", 1_000, 1, 0, 1, 7)
    content += selection + sized(digest)
    signature = tpm.ak.sign(content, ec.ECDSA(hashes.SHA256()))
    return AttestationProof(quote=encoded(content), signature=encoded(signature), pcrs=list(pcrs))


def answer(
    tpm: SoftwareTpm, nonce: bytes, firmware: list[dict[str, Any]] | None = None, **more: Any
) -> AttestationReport:
    """A report with a proof."""
    return AttestationReport.model_validate(
        {"proof": proof(tpm, nonce, **more).model_dump(), "firmware": firmware}
    )  # fmt: skip


def bind(url: str, node: uuid.UUID, tpm: SoftwareTpm) -> None:
    """The node has enrolled with this TPM."""
    with connect(url) as connection:
        connection.execute("delete from node_tpms where node_id = %s", (node,))
        connection.execute(_BIND, (node, tpm.ek_public, tpm.ek_public, tpm.ak_public))


async def ready(
    context: Context, url: str, node: uuid.UUID, tpm: SoftwareTpm, features: Sequence[str] = (ATTEST_FEATURE,)
) -> None:
    """An online node with this TPM."""
    await beat(context, node, uuid.uuid4(), features)
    bind(url, node, tpm)


def _no_addresses() -> Addresses:
    raise AssertionError("a node with an agent needs no addresses")


async def ask(context: Context, node: uuid.UUID) -> Answer:
    return await request_attestation(context, admin_operation(), ADMIN, node, _no_addresses)


async def accept(context: Context, node: uuid.UUID, attestation: uuid.UUID) -> Answer:
    return await accept_attestation(context, admin_operation(), ADMIN, node, attestation)


def attestation_row(url: str) -> dict[str, Any]:
    return row_of(url, "select * from node_attestations order by id desc limit 1")


def attestation_task(url: str) -> dict[str, Any]:
    """The newest task of an attestation."""
    return row_of(url, "select * from node_tasks where type = 'diag.attest' order by queued_at desc limit 1")


def nonce_of(task: dict[str, Any]) -> bytes:
    """The nonce that the signed task names."""
    body = TaskBody.model_validate_json(base64.b64decode(task["envelope"]["payload"]))
    assert (body.type, body.allocation_id) == ("diag.attest", None)
    return bytes.fromhex(body.parameters["nonce"])


async def issue(context: Context, url: str, node: uuid.UUID) -> bytes:
    """Sign the task of the requested attestation; its nonce."""
    assert await find_open_attestations(context, 10) == [node]
    assert await advance_attestation(context, node, OnFailure.REPORT) is Advanced.ISSUED
    assert await find_open_attestations(context, 10) == []
    return nonce_of(attestation_task(url))


async def respond(
    context: Context, url: str, node: uuid.UUID, found: AttestationReport | FailureCode | dict[str, Any],
    on_failure: OnFailure = OnFailure.REPORT,
) -> Advanced:  # fmt: skip
    """Answer the open attestation and judge it."""
    task = attestation_task(url)
    said: ResultReport
    if isinstance(found, FailureCode):
        said = failed(task, found)
    else:
        said = completed(task, json.loads(found.canonical()) if isinstance(found, AttestationReport) else found)
    assert (await report(context, task, said)).applied
    assert await find_open_attestations(context, 10) == [node]
    advanced = await advance_attestation(context, node, on_failure)
    assert advanced is not None
    assert await advance_attestation(context, node, on_failure) is None, "it is judged once"
    return advanced


async def attest(context: Context, url: str, node: uuid.UUID, tpm: SoftwareTpm, **more: Any) -> Advanced:
    """A whole attestation, answered by this TPM."""
    asked = await ask(context, node)
    assert asked.status == 200, asked.body
    return await respond(context, url, node, answer(tpm, await issue(context, url, node), **more))
