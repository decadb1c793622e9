"""The issuer verifies the quote of a request again: what a listener has recorded is not enough."""

from __future__ import annotations

import base64
from typing import Any
from uuid import UUID

import pytest

from node_agent.attestation.wire import quoted_data
from orchestrator.nodes.commands.issuance import NOT_ATTESTED
from tests.api.calling import signing_request
from tests.api.nodes.attestation.attesting import Enrolling, decision, key_digest, set_attestation
from tests.api.nodes.attestation.software_tpm import SoftwareTpm
from tests.api.nodes.node_side import new_key
from tests.support.public_api import PublicApi

SECRET = bytes(32)


def forged(tpm: SoftwareTpm, other: SoftwareTpm, key_sha256: bytes) -> dict[str, dict[str, bytes | None]]:
    """Requests that a listener in an attacker's hands could record for a node whose TPM it does not have."""

    def quoted(of: SoftwareTpm, key: bytes) -> dict[str, bytes | None]:
        proof = of.quote(quoted_data(SECRET, key))
        quote, signature = base64.b64decode(proof.quote), base64.b64decode(proof.signature)
        return {"secret": SECRET, "quote": quote, "signature": signature}

    return {
        "no quote": dict.fromkeys(("secret", "quote", "signature")),
        "another key's quote": quoted(other, key_sha256),
        "a quote of an earlier request": quoted(tpm, bytes(32)),
        "no quote at all in it": {"secret": SECRET, "quote": b"quote", "signature": b"signature"},
    }


@pytest.mark.parametrize("name", forged(SoftwareTpm(), SoftwareTpm(), b""))
def test_the_issuer_refuses_what_does_not_prove_the_tpm(api: PublicApi, node: Any, name: str) -> None:
    tpm, key = SoftwareTpm(), new_key()
    assert Enrolling.of(api, node).attest(tpm).status_code == 200
    values = forged(tpm, SoftwareTpm(), key_digest(key))[name]
    more = {"key": key_digest(key), "csr": signing_request(key), "node": UUID(node["id"])}
    assert decision(api, {**values, **more}) == NOT_ATTESTED


def test_the_issuer_refuses_a_node_that_must_attest_and_never_did(api: PublicApi, node: Any) -> None:
    tpm, key = SoftwareTpm(), new_key()
    assert Enrolling.of(api, node).send().status_code == 200
    set_attestation(api, node, policy="required", ek_sha256=tpm.ek_sha256)
    values = forged(tpm, tpm, key_digest(key))["another key's quote"]
    more = {"key": key_digest(key), "csr": signing_request(key), "node": UUID(node["id"])}
    assert decision(api, {**values, **more}) == NOT_ATTESTED
