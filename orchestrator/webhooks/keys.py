"""Keeps the keys of webhooks in the database unreadable to who has only the database.

They are needed again at every delivery, so they cannot be hashed: AES-256-GCM under a key derived (HKDF, RFC 5869) from
the task signing key, which the orchestrator and the worker have in a file. The webhook's id is authenticated with them, so
that none can be put in another's place. After a change of the task signing key every webhook has to be rotated.
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
    """It was sealed under another task signing key, or for another webhook."""


class WebhookKeys:
    """Seals the keys of webhooks and opens them."""

    def __init__(self, signer: TaskSigner) -> None:
        self._cipher = AESGCM(signer.derive_key(_PURPOSE))

    def seal(self, webhook_id: UUID, key: str) -> str:
        """The key, encrypted for this webhook."""
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, key.encode(), webhook_id.bytes)).decode()

    def open(self, webhook_id: UUID, sealed: str) -> str:
        """The key again. Raises `WebhookKeyUnreadable`."""
        raw = base64.b64decode(sealed)
        try:
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], webhook_id.bytes).decode()
        except InvalidTag:
            raise WebhookKeyUnreadable("the task signing key is not the one that it was sealed under") from None
