"""The key set: what agents trust, signed by an offline root key. Wire types, the bytes that are signed, verification.

A key set names the keys that sign tasks and the CAs of the node listener. It travels as a DSSE envelope, as tasks do. The
control plane carries it and cannot change it: agents pin the root's public keys (`BERTH_ROOT_KEYS_FILE`). Each set has a
serial; an agent that has seen one accepts no smaller one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from pydantic import Field, ValidationError, field_validator, model_validator

from node_agent.protocol import Signature, pre_authentication_encoding
from node_agent.wire.fields import Exact, Instant, Whole

KEY_SET_PAYLOAD_TYPE: Final = "application/vnd.berth.key-set+json"
KEY_SET_BYTES_MAX: Final = 65_536
TASK_KEYS_MAX: Final = 16
NODE_CAS_MAX: Final = 8
KEY_BYTES: Final = 32

Refusal = Literal["missing", "too_large", "malformed", "unknown_root", "bad_signature", "older_serial", "serial_reused"]
REFUSALS: Final[tuple[str, ...]] = get_args(Refusal)
"""Why an agent refuses a key set."""

_PEM_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)


class KeySetRefused(Exception):
    """A key set that must not be used; `reason` is a word of `REFUSALS`."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: Refusal = reason


class TaskKey(Exact):
    """A public key that tasks may be signed with (raw Ed25519, base64), from `not_before` until `not_after` if they are set."""

    key_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    public_key: Annotated[str, Field(max_length=44)]
    not_before: Instant | None = None
    not_after: Instant | None = None

    @model_validator(mode="after")
    def _is_a_key(self) -> TaskKey:
        if key_id(self.key()) != self.key_id:
            raise ValueError("key_id is not that of public_key")
        if self.not_before is not None and self.not_after is not None and self.not_after <= self.not_before:
            raise ValueError("not_after must be later than not_before")
        return self

    def key(self) -> Ed25519PublicKey:
        """The key. Raises ValueError, which validation has excluded."""
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(self.public_key, validate=True))


class KeySet(Exact):
    """The signed content. `node_cas`: PEM certificates of the CAs, one each, that the node listener's certificate may have.

    `deploy_cas`: of the CAs of deploy systems, which verifiers of wipe certificates need; left out if there is none, as agents of
    earlier versions refuse a set that has the member.
    """

    serial: Annotated[Whole, Field(ge=1)]
    task_keys: Annotated[list[TaskKey], Field(min_length=1, max_length=TASK_KEYS_MAX)]
    node_cas: Annotated[list[Annotated[str, Field(max_length=8_192)]], Field(min_length=1, max_length=NODE_CAS_MAX)]
    deploy_cas: Annotated[list[Annotated[str, Field(max_length=8_192)]], Field(max_length=NODE_CAS_MAX)] = Field(
        default_factory=list, exclude_if=lambda cas: not cas
    )

    @field_validator("node_cas", "deploy_cas")
    @classmethod
    def _are_certificates(cls, cas: list[str]) -> list[str]:
        for pem in cas:
            try:
                x509.load_pem_x509_certificate(pem.encode())
            except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
                raise ValueError("must be PEM certificates") from error
        return cas


class KeySetEnvelope(Exact):
    """A DSSE envelope around one `KeySet`."""

    payloadType: Literal["application/vnd.berth.key-set+json"] = KEY_SET_PAYLOAD_TYPE  # noqa: N815 - the standard's name
    payload: Annotated[str, Field(max_length=KEY_SET_BYTES_MAX)]
    signatures: Annotated[list[Signature], Field(min_length=1, max_length=4)]


def key_id(key: Ed25519PublicKey) -> str:
    """The name of a key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def task_key(key: Ed25519PublicKey) -> TaskKey:
    """A key as a key set names it, valid without end."""
    raw = base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
    return TaskKey(key_id=key_id(key), public_key=raw)


def read_public_keys(path: Path) -> list[Ed25519PublicKey]:
    """Read PEM Ed25519 public keys, one or more. Raises ValueError if there is none or anything else, OSError."""
    blocks = list(_PEM_BLOCK.finditer(path.read_bytes()))
    if not blocks:
        raise ValueError(f"{path.name} holds no PEM public key")
    return [_read_public_key(path.name, block) for block in blocks]


def _read_public_key(name: str, block: re.Match[bytes]) -> Ed25519PublicKey:
    if block[1] != b"PUBLIC KEY":
        raise ValueError(f"{name} holds a {block[1].decode()}; it may hold only public keys")
    key = load_pem_public_key(block[0])
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{name} holds a key that is not an Ed25519 key")
    return key


def root_keys(keys: Iterable[Ed25519PublicKey]) -> dict[str, Ed25519PublicKey]:
    """The keys by their names, as `open_key_set` takes them."""
    return {key_id(key): key for key in keys}


def sign_key_set(key_set: KeySet, root: Ed25519PrivateKey) -> KeySetEnvelope:
    """Wrap and sign. `deploy/sign-key-set` does the same with openssl alone."""
    payload = key_set.model_dump_json(exclude_none=True).encode()
    signature = root.sign(pre_authentication_encoding(KEY_SET_PAYLOAD_TYPE, payload))
    signed = Signature(keyid=key_id(root.public_key()), sig=base64.b64encode(signature).decode())
    return KeySetEnvelope(payload=base64.b64encode(payload).decode(), signatures=[signed])


def read_envelope(content: bytes) -> KeySetEnvelope:
    """Parse an envelope without trusting it. Raises KeySetRefused."""
    if len(content) > KEY_SET_BYTES_MAX:
        raise KeySetRefused("too_large", f"{len(content)} bytes; at most {KEY_SET_BYTES_MAX} are accepted")
    try:
        return KeySetEnvelope.model_validate_json(content)
    except ValidationError as error:
        raise KeySetRefused("malformed", _fields_of(error)) from error


def read_unverified(envelope: KeySetEnvelope) -> KeySet:
    """The content, its signature not verified: for a process that only carries the set. Raises KeySetRefused."""
    try:
        return KeySet.model_validate_json(base64.b64decode(envelope.payload, validate=True))
    except ValidationError as error:
        raise KeySetRefused("malformed", _fields_of(error)) from error
    except binascii.Error as error:
        raise KeySetRefused("malformed", "the payload is not base64") from error


def open_key_set(envelope: KeySetEnvelope, roots: Mapping[str, Ed25519PublicKey]) -> KeySet:
    """Return the content if one of the roots has signed it; it is parsed only after its signature held. Raises KeySetRefused."""
    known = [signature for signature in envelope.signatures if signature.keyid in roots]
    if not known:
        names = ", ".join(signature.keyid[:16] for signature in envelope.signatures)
        raise KeySetRefused("unknown_root", f"signed by {names}, and none of them is pinned")
    try:
        signed = pre_authentication_encoding(envelope.payloadType, base64.b64decode(envelope.payload, validate=True))
        roots[known[0].keyid].verify(base64.b64decode(known[0].sig, validate=True), signed)
    except (InvalidSignature, ValueError) as error:
        raise KeySetRefused("bad_signature", f"the signature of {known[0].keyid} does not hold") from error
    return read_unverified(envelope)


def _fields_of(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, found['loc'])) or 'content'}: {found['msg']}" for found in error.errors()[:3])
