"""What a node with a TPM and the control plane send each other: keys, a challenge, and a quote that answers it.

Binary structures of TPM 2.0 travel in base64. docs/reference/node-protocol.md describes the exchange.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from pydantic import Field

from node_agent.protocol import CertificateRequest, EnrolRequest
from node_agent.wire.fields import FromServer, Wire

_CONTEXT: Final = b"berth node attestation v1\0"
STRUCTURE_CHARACTERS_MAX: Final = 1_400

Structure = Annotated[str, Field(min_length=4, max_length=STRUCTURE_CHARACTERS_MAX, pattern=r"^[A-Za-z0-9+/]+={0,2}$")]
"""A structure of TPM 2.0 in base64 (RFC 4648 §4)."""


class TpmKeys(Wire):
    """The endorsement key and the attestation key of a node's TPM, each a TPMT_PUBLIC."""

    ek_public: Structure
    ak_public: Structure


class EnrolmentChallengeRequest(Wire):
    """Body of `POST /api/v1/nodes/enroll/challenge`: the token that will be used, and the TPM."""

    token: Annotated[str, Field(min_length=16, max_length=200)]
    hardware_id: Annotated[str, Field(min_length=1, max_length=200)]
    tpm: TpmKeys


class AttestationChallenge(FromServer):
    """A secret for the TPM: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET. Both null: no proof is needed."""

    credential: str | None = None
    encrypted_secret: str | None = None


class Attestation(Wire):
    """The answer to a challenge: a TPMS_ATTEST of type quote, and its ECDSA signature in DER."""

    quote: Structure
    signature: Structure


class AttestedEnrolRequest(EnrolRequest):
    """`EnrolRequest` with a proof of the node's TPM, where it has one."""

    attestation: Attestation | None = None


class AttestedCertificateRequest(CertificateRequest):
    """`CertificateRequest` with a proof of the node's TPM, where it has one."""

    attestation: Attestation | None = None


def quoted_data(secret: bytes, key_sha256: bytes) -> bytes:
    """What the quote must name: the challenge's secret and the key to certify (SHA-256 of its SubjectPublicKeyInfo)."""
    return hashlib.sha256(_CONTEXT + secret + key_sha256).digest()
