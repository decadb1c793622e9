"""Signs tasks for nodes with the control plane's Ed25519 key (RFC 8032): only the worker has it.

Agents know the public keys from the key set, which an offline root has signed (node_agent/key_set.py).
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from node_agent.key_set import key_id
from node_agent.protocol import Envelope, TaskBody, sign_task


class TaskSigner:
    """Holds the signing key; its id is the first 16 hex digits of the public key's SHA-256."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.key_id = key_id(key.public_key())

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
