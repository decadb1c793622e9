"""Encrypts the signing keys of webhooks, so that a copy of the database does not reveal them.

Every delivery needs them, so they cannot be hashed: AES-256-GCM under a key derived (HKDF, RFC 5869) from the task signing
key, which the orchestrator and the worker read from a file. The webhook's id is authenticated data, so a key cannot be moved
to another webhook. After a change of the task signing key every webhook has to be rotated.
"""

from __future__ import annotations

import base64
import os
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from orchestrator.tasks.signing import TaskSigner

_PURPOSE: Final = b"berth: keys of webhooks"
_NONCE_BYTES: Final = 12


class WebhookKeyUnreadable(Exception):
    """The key was sealed under another task signing key, or for another webhook."""


class WebhookKeys:
    """Seals and opens signing keys of webhooks."""

    def __init__(self, signer: TaskSigner) -> None:
        self._cipher = AESGCM(signer.derive_key(_PURPOSE))

    def seal(self, webhook_id: UUID, key: str) -> str:
        """Encrypt a key for this webhook."""
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, key.encode(), webhook_id.bytes)).decode()

    def open(self, webhook_id: UUID, sealed: str) -> str:
        """Decrypt a key of this webhook. Raises `WebhookKeyUnreadable`."""
        raw = base64.b64decode(sealed)
        try:
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], webhook_id.bytes).decode()
        except InvalidTag:
            raise WebhookKeyUnreadable(
                "the key was sealed under another task signing key; rotate the webhook"
            ) from None
