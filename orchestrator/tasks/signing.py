"""Signs tasks for nodes with the control plane's Ed25519 key (RFC 8032): only the worker has it.

The listeners give agents the public keys, which they read from a separate file.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from node_agent.protocol import Envelope, TaskBody, VerifyingKey, sign_task

_PEM_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", re.DOTALL)


class TaskSigner:
    """Holds the signing key; its id is the first 16 hex digits of the public key's SHA-256."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = verifying_key(key.public_key()).key_id

    def sign(self, body: TaskBody) -> Envelope:
        """Wrap and sign; the body must name this key."""
        assert body.key_id == self.key_id, "a task names the key that signs it"
        return sign_task(body, self._key)


def load_signer(path: Path) -> TaskSigner:
    """Read a PEM PKCS#8 Ed25519 key. Raises ValueError if it is anything else, OSError if it cannot be read."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path.name} is not an Ed25519 key")
    return TaskSigner(key)


def verifying_key(key: Ed25519PublicKey) -> VerifyingKey:
    """The public key as agents get it."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return VerifyingKey(key_id=hashlib.sha256(raw).hexdigest()[:16], public_key=base64.b64encode(raw).decode())


def load_verifying_keys(path: Path) -> list[VerifyingKey]:
    """Read PEM Ed25519 public keys, one or more. Raises ValueError if there is none or anything else, OSError."""
    blocks = list(_PEM_BLOCK.finditer(path.read_bytes()))
    if not blocks:
        raise ValueError(f"{path.name} holds no PEM public key")
    return [verifying_key(_read_public_key(path.name, block)) for block in blocks]


def _read_public_key(name: str, block: re.Match[bytes]) -> Ed25519PublicKey:
    if block[1] != b"PUBLIC KEY":
        raise ValueError(f"{name} holds a {block[1].decode()}; it may hold only public keys")
    key = load_pem_public_key(block[0])
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"{name} holds a key that is not an Ed25519 key")
    return key
