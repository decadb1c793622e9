"""Signs tasks for nodes with the control plane's Ed25519 key (RFC 8032)."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from node_agent.protocol import Envelope, TaskBody, VerifyingKey, sign_task


class TaskSigner:
    """Holds the signing key; its id is the first 16 hex digits of the public key's SHA-256."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = hashlib.sha256(raw).hexdigest()[:16]
        self.verifying_key = VerifyingKey(key_id=self.key_id, public_key=base64.b64encode(raw).decode())

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
