"""A certificate or signing request of a version that X.509 does not have is bad input, and no defect: each reader refuses it."""

from __future__ import annotations

import base64
import datetime as dt
import textwrap

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import ValidationError

from node_agent.key_set import KeySet
from node_agent.wiping.statement import STATEMENT_PAYLOAD_TYPE, StatementEnvelope, StatementRejected, open_statement
from orchestrator.nodes.attestation.evidence import fingerprint_of_certificate
from orchestrator.nodes.certificates import read_signing_request
from orchestrator.problems import Invalid

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NAME = x509.Name([])


def pem(der: bytes, version: bytes, kind: str) -> str:
    """The DER with another version (its first INTEGER), as PEM."""
    at = der.index(version) + len(version) - 1
    changed = der[:at] + b"\x34" + der[at + 1 :]
    text = x509.load_der_x509_certificate(der) if kind == "CERTIFICATE" else x509.load_der_x509_csr(der)
    lines = text.public_bytes(Encoding.PEM).decode().splitlines()
    return "\n".join([lines[0], *textwrap.wrap(base64.b64encode(changed).decode(), 64), lines[-1], ""])


def certificate() -> str:
    made = (
        x509.CertificateBuilder().subject_name(NAME).issuer_name(NAME).public_key(KEY.public_key()).serial_number(1)
        .not_valid_before(NOW).not_valid_after(NOW + dt.timedelta(days=1)).sign(KEY, hashes.SHA256())
    )  # fmt: skip
    return pem(made.public_bytes(Encoding.DER), b"\xa0\x03\x02\x01\x02", "CERTIFICATE")


def test_every_reader_refuses_a_version_that_does_not_exist() -> None:
    request = x509.CertificateSigningRequestBuilder().subject_name(NAME).sign(KEY, hashes.SHA256())
    with pytest.raises(Invalid, match="not a readable certificate signing request"):
        read_signing_request(pem(request.public_bytes(Encoding.DER), b"\x02\x01\x00", "CERTIFICATE REQUEST"))
    with pytest.raises(Invalid, match="not a readable certificate in PEM"):
        fingerprint_of_certificate(certificate())
    signature = {"keyid": "0" * 64, "sig": "AA==", "certificate": certificate()}
    envelope = StatementEnvelope.model_validate(
        {"payloadType": STATEMENT_PAYLOAD_TYPE, "payload": "AA==", "signatures": [signature]}
    )
    with pytest.raises(StatementRejected, match="cannot be read"):
        open_statement(envelope)
    with pytest.raises(ValidationError, match="must be PEM certificates"):
        KeySet.model_validate({"serial": 1, "task_keys": [], "node_cas": [certificate()]})
