"""Signs tasks for nodes with the control plane's Ed25519 key (RFC 8032): only the worker has it.

Agents know the public keys from the key set, which an offline root has signed (node_agent/key_set.py). The same key
countersigns wipe statements; the payload's type, which is part of what is signed, keeps one from being taken for the other.
"""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from node_agent.key_set import key_id
from node_agent.protocol import Envelope, Signature, TaskBody, pre_authentication_encoding, sign_task
from orchestrator.tasks.key_set_file import CarriedKeySet, KeySetFile


class TaskSigner:
    """Holds the signing key; its id is the first 16 hex digits of the public key's SHA-256."""

    def __init__(self, key: Ed25519PrivateKey, key_set_file: KeySetFile | None = None) -> None:
        self._key = key
        self._key_set_file = key_set_file
        self.key_id = key_id(key.public_key())

    def sign(self, body: TaskBody) -> Envelope:
        """Wrap and sign; the body must name this key."""
        assert body.key_id == self.key_id, "a task names the key that signs it"
        return sign_task(body, self._key)

    def countersign(self, payload_type: str, payload: bytes) -> Signature:
        """A DSSE signature over a payload of another type than a task's."""
        signature = self._key.sign(pre_authentication_encoding(payload_type, payload))
        return Signature(keyid=self.key_id, sig=base64.b64encode(signature).decode())

    def key_set(self) -> CarriedKeySet | None:
        """The key set that verifiers of this key need, as its file has it now; None without one."""
        return None if self._key_set_file is None else self._key_set_file.current()


def load_signer(path: Path, key_set_file: Path | None = None) -> TaskSigner:
    """Read a PEM PKCS#8 Ed25519 key, and the key set. Raises ValueError if it is anything else, OSError if it cannot be read."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{path.name} is not an Ed25519 key")
    return TaskSigner(key, None if key_set_file is None else KeySetFile(key_set_file))
