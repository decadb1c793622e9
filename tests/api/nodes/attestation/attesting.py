"""Enrol and renew as an agent with a TPM does, step by step."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node_agent.attestation.wire import Attestation, AttestationChallenge
from tests.api.calling import Caller, signing_request
from tests.api.nodes.attestation.software_tpm import SoftwareTpm
from tests.api.nodes.node_side import Key, NodeSide, new_key
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for

_FORGED = """
insert into certificate_requests (node_id, node_epoch, predecessor, key_sha256, csr_pem, attestation_secret, quote,
                                  quote_signature)
select n.id, n.epoch, c.serial, %(key)s, %(csr)s, %(secret)s, %(quote)s, %(signature)s
from nodes n join node_certificates c on c.node_id = n.id where n.id = %(node)s returning id
"""


def key_digest(key: Key) -> bytes:
    """SHA-256 of the key's SubjectPublicKeyInfo."""
    return hashlib.sha256(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def dumped(attestation: Attestation | None) -> dict[str, Any]:
    """The member of a request."""
    return {} if attestation is None else {"attestation": attestation.model_dump()}


@dataclass
class Enrolling:
    """A token with the key of one machine."""

    api: PublicApi
    node: Any
    key: Key
    token: str
    hardware_id: str = "machine-1"

    @classmethod
    def of(cls, api: PublicApi, node: Any) -> Enrolling:
        """A new token for a node."""
        token = api.admin.make(f"/admin/nodes/{node['id']}/enrolment-token", {})["token"]
        return cls(api, node, new_key(), token)

    def ask(self, tpm: SoftwareTpm) -> httpx.Response:
        """Ask for a challenge."""
        body = {"token": self.token, "hardware_id": self.hardware_id, "tpm": tpm.keys().model_dump()}
        return Caller(self.api.admin.http, None).call("POST", "/nodes/enroll/challenge", body)

    def challenge(self, tpm: SoftwareTpm) -> AttestationChallenge:
        """The challenge that was asked for."""
        answer = self.ask(tpm)
        assert answer.status_code == 200, answer.text
        return AttestationChallenge.model_validate_json(answer.content)

    def send(self, attestation: Attestation | None = None) -> httpx.Response:
        """Enrol with this answer to the challenge."""
        body = {"token": self.token, "hardware_id": self.hardware_id, "csr_pem": signing_request(self.key)}
        return Caller(self.api.admin.http, None).call("POST", "/nodes/enroll", {**body, **dumped(attestation)})

    def attest(self, tpm: SoftwareTpm) -> httpx.Response:
        """Answer a new challenge and enrol."""
        return self.send(tpm.answer(self.challenge(tpm), key_digest(self.key)))


@dataclass
class Renewing:
    """A node's certificate, to be renewed."""

    side: NodeSide
    pem: str

    def ask(self, tpm: SoftwareTpm) -> httpx.Response:
        """Ask for a challenge."""
        self.side.peer.present(self.pem)
        return self.side.http.post("/node/v1/certificate/challenge", json=tpm.keys().model_dump())

    def challenge(self, tpm: SoftwareTpm) -> AttestationChallenge:
        """The challenge that was asked for."""
        answer = self.ask(tpm)
        assert answer.status_code == 200, answer.text
        return AttestationChallenge.model_validate_json(answer.content)

    def send(self, key: Key, attestation: Attestation | None = None) -> httpx.Response:
        """Renew for this key with this answer to the challenge."""
        self.side.peer.present(self.pem)
        return self.side.http.post(
            "/node/v1/certificate", json={"csr_pem": signing_request(key), **dumped(attestation)}
        )

    def attest(self, tpm: SoftwareTpm, key: Key | None = None) -> httpx.Response:
        """Answer a new challenge and renew."""
        used = key or new_key()
        return self.send(used, tpm.answer(self.challenge(tpm), key_digest(used)))


def set_attestation(api: PublicApi, node: Any, **members: Any) -> Any:
    """Set the policy and the TPM of a node as an operator; the node."""
    answer = api.admin.call("PUT", f"/admin/nodes/{node['id']}/attestation", members)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusals(api: PublicApi, node: Any) -> list[Any]:
    """The audited refusals of a node's attestation: code and reason, in order."""
    rows = api.database.execute(
        "select detail from audit_pending where action = 'node.refuse_attestation' and subject = %s order by id",
        (f"nodes/{node['id']}",),
    )  # fmt: skip
    found: list[Any] = rows.fetchall()
    return [(detail["code"], detail.get("reason")) for (detail,) in found]


def decision(api: PublicApi, values: dict[str, Any]) -> object:
    """Record a request as a listener would, and return why the issuer has refused it."""
    row = api.database.execute(_FORGED, values).fetchone()
    assert row is not None
    found: list[Any] = []

    def decided() -> bool:
        query = "select refusal from certificate_requests where id = %s and (refusal is not null or serial is not null)"
        found[:] = api.database.execute(query, row).fetchall()
        return bool(found)

    wait_for(decided, "the issuer decides")
    return found[0][0]
