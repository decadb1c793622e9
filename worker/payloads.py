"""Encrypts what Temporal stores: inputs, results, signals, headers, memos and the texts of failures.

AES-256-GCM under a key of `BERTH_TEMPORAL_PAYLOAD_KEY_FILE`: the first key encrypts, all decrypt. A payload names its key
by id in its metadata, in the form of Temporal's documentation ("Custom Payload Codec"). A payload without encryption, which
an earlier version wrote, is read as it is. Ids of workflows stay readable; tenants appear as keyed digests only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from berth.process.key_files import KEY_BYTES, read_keys
from worker.metrics import PAYLOADS_UNREADABLE

log = structlog.get_logger()

ENCODING: Final = "encoding"
ENCRYPTED: Final = b"binary/encrypted"
KEY_ID: Final = "encryption-key-id"
_NONCE_BYTES: Final = 12
_ID_LENGTH: Final = 16
_PURPOSE: Final = b"berth: payloads of Temporal"
_OF_TENANTS: Final = b"berth: digests of tenants in Temporal"


class PayloadUnreadable(Exception):
    """A payload was encrypted under a key that this process does not have, or was altered. It never contains content."""


class PayloadKeys:
    """Encrypts under the first key and decrypts under any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._ciphers = {_key_id(key): AESGCM(key) for key in keys}
        self._newest = _key_id(keys[0])
        self._digest_key = HKDF(SHA256(), KEY_BYTES, salt=None, info=_OF_TENANTS).derive(keys[0])

    def encrypt(self, payload: Payload) -> Payload:
        """The payload with its metadata, encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._newest].encrypt(nonce, payload.SerializeToString(), _PURPOSE)
        return Payload(metadata={ENCODING: ENCRYPTED, KEY_ID: self._newest.encode()}, data=nonce + sealed)

    def decrypt(self, payload: Payload) -> Payload:
        """The payload as it was; one that is not encrypted is returned unchanged. Raises `PayloadUnreadable`."""
        if payload.metadata.get(ENCODING) != ENCRYPTED:
            return payload
        key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise _unreadable(
                "unknown_key", key_id, "is encrypted under a key that BERTH_TEMPORAL_PAYLOAD_KEY_FILE lacks"
            )
        try:
            opened = cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], _PURPOSE)
        except (InvalidTag, ValueError) as error:
            raise _unreadable("altered", key_id, "was altered after its encryption") from error
        return Payload.FromString(opened)

    def digest(self, tenant_id: str) -> str:
        """A tenant's id as Temporal may store it in the clear: HMAC-SHA256 under a key derived from the first."""
        return hmac.new(self._digest_key, tenant_id.encode(), hashlib.sha256).hexdigest()[:32]


def _unreadable(reason: str, key_id: str, what: str) -> PayloadUnreadable:
    PAYLOADS_UNREADABLE.labels(reason).inc()
    log.error("payload_unreadable", reason=reason, key_id=key_id)
    return PayloadUnreadable(f"a payload {what}; its key id is {key_id!r}")


class EncryptingCodec(PayloadCodec):
    """Applies `PayloadKeys` to every payload that leaves or enters this process."""

    def __init__(self, keys: PayloadKeys) -> None:
        self._keys = keys

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each."""
        return [self._keys.encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each. `PayloadUnreadable` fails the workflow's task, which Temporal repeats with growing pauses."""
        return [self._keys.decrypt(payload) for payload in payloads]


def load_payload_keys(path: Path) -> PayloadKeys:
    """Read the keys. Raises ValueError if a line is not base64 of 32 bytes or there is none, OSError."""
    return PayloadKeys(read_keys(path, "payload key"))


def encrypting_converter(keys: PayloadKeys) -> DataConverter:
    """Temporal's own converter, with everything encrypted: messages and stack traces of failures become payloads."""
    return replace(
        DataConverter.default,
        payload_codec=EncryptingCodec(keys),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def _key_id(key: bytes) -> str:
    return hashlib.sha256(_PURPOSE + key).hexdigest()[:_ID_LENGTH]
