"""Challenge a TPM and verify its answer (TPM 2.0 Library, Part 1, 24: Credential Protection).

The control plane encrypts a secret to the endorsement key and the name of the attestation key (`TPM2_MakeCredential`). Only the
TPM that holds both can decrypt it (`TPM2_ActivateCredential`). Its attestation key then signs a quote over the secret and the
key of the certificate request, so one quote proves the TPM, answers one challenge and certifies one key.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.x509 import InvalidVersion, load_pem_x509_certificate

from node_agent.attestation.wire import quoted_data
from orchestrator.nodes.attestation.structures import AttestationKey, EndorsementKey, public_key_digest, read_quote
from orchestrator.nodes.refusals import AttestationReason, AttestationRefused
from orchestrator.problems import Invalid

SECRET_BYTES: Final = 32
SIGNATURE_BYTES_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Challenge:
    """A secret, and what the TPM needs to decrypt it: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET."""

    secret: bytes
    credential: bytes
    encrypted_secret: bytes


@dataclass(frozen=True, slots=True)
class Evidence:
    """A quote that answers a challenge: the challenge's secret, TPMS_ATTEST, and the signature in DER."""

    secret: bytes
    quote: bytes
    signature: bytes


def new_challenge(ek: EndorsementKey, ak: AttestationKey) -> Challenge:
    """A new secret for the TPM that holds both keys."""
    secret, seed = os.urandom(SECRET_BYTES), os.urandom(32)
    oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=b"IDENTITY\0")
    encrypted_seed = ek.key.encrypt(seed, oaep)
    cipher = Cipher(AES(_kdfa(seed, b"STORAGE", ak.name, 128)), CFB(bytes(16))).encryptor()
    identity = cipher.update(_sized(secret)) + cipher.finalize()
    integrity = hmac.digest(_kdfa(seed, b"INTEGRITY", b"", 256), identity + ak.name, "sha256")
    return Challenge(secret, _sized(_sized(integrity) + identity), _sized(encrypted_seed))


def verify_evidence(ak: AttestationKey, evidence: Evidence, key_sha256: bytes) -> None:
    """Return if the attestation key signed a quote over this challenge and this key. Raises `AttestationRefused`."""
    quote = read_quote(evidence.quote)
    if not hmac.compare_digest(quote.extra_data, quoted_data(evidence.secret, key_sha256)):
        raise AttestationRefused(
            AttestationReason.OTHER_REQUEST, "the quote answers another challenge or names another key"
        )
    require_signature(ak, evidence.quote, evidence.signature)


def require_signature(ak: AttestationKey, quote: bytes, signature: bytes) -> None:
    """Return if the attestation key signed the quote. Raises `AttestationRefused`."""
    if len(signature) > SIGNATURE_BYTES_MAX:
        raise AttestationRefused(
            AttestationReason.MALFORMED, f"the signature is longer than {SIGNATURE_BYTES_MAX} bytes"
        )
    try:
        ak.key.verify(signature, quote, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise AttestationRefused(
            AttestationReason.BAD_SIGNATURE, "the attestation key did not sign the quote"
        ) from error


def fingerprint_of_certificate(pem: str) -> bytes:
    """The fingerprint of the endorsement key in its certificate. Raises `Invalid`."""
    try:
        key = load_pem_x509_certificate(pem.encode()).public_key()
    except (ValueError, UnsupportedAlgorithm, InvalidVersion) as error:
        raise _invalid_certificate("is not a readable certificate in PEM") from error
    if not isinstance(key, rsa.RSAPublicKey):
        raise _invalid_certificate("must have an RSA key, that of the endorsement key which agents use")
    return public_key_digest(key)


def _invalid_certificate(what: str) -> Invalid:
    return Invalid(f"ek_certificate: {what}", errors=[{"field": "ek_certificate", "message": what}])


def _kdfa(key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    """KDFa (Part 1, 11.4.10.2) for at most one block of SHA-256, with an empty second context."""
    counter, length = (1).to_bytes(4, "big"), bits.to_bytes(4, "big")
    return hmac.digest(key, counter + label + b"\0" + context + length, "sha256")[: bits // 8]


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content
