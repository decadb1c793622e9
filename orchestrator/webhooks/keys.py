"""Encrypts the signing keys of webhooks, so that a copy of the database does not reveal them.

Every delivery needs them, so they cannot be hashed: AES-256-GCM under a sealing key from `BERTH_WEBHOOK_KEY_FILE`. The
file holds one sealing key per line, base64 of 32 bytes: the first seals, all open. The webhook's id is authenticated
data, so a signing key cannot be moved to another webhook. The text begins with the id of its sealing key; a text without
an id was sealed before the file existed, under a key derived from the task signing key.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from berth.process.key_files import read_keys

_NONCE_BYTES: Final = 12
_KEY_ID: Final = b"berth: id of a webhook sealing key"
_KEY_ID_LENGTH: Final = 16
_SEPARATOR: Final = "."


class WebhookKeyUnreadable(Exception):
    """The key was sealed under a sealing key that this process does not have, or for another webhook."""


class WebhookKeys:
    """Seals signing keys of webhooks under the first sealing key, and opens those sealed under any of them."""

    def __init__(self, sealing_keys: Sequence[bytes]) -> None:
        self._ciphers = {_key_id(key): AESGCM(key) for key in sealing_keys}
        self._newest = _key_id(sealing_keys[0])

    @property
    def prefix(self) -> str:
        """The beginning of every text that the first sealing key sealed, and of no other."""
        return self._newest + _SEPARATOR

    def seal(self, webhook_id: UUID, key: str) -> str:
        """Encrypt a key for this webhook."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._ciphers[self._newest].encrypt(nonce, key.encode(), webhook_id.bytes)
        return self.prefix + base64.b64encode(sealed).decode()

    def open(self, webhook_id: UUID, sealed: str) -> str:
        """Decrypt a key of this webhook. Raises `WebhookKeyUnreadable`."""
        key_id, separator, text = sealed.rpartition(_SEPARATOR)
        ciphers = [self._ciphers.get(key_id)] if separator else self._ciphers.values()
        raw = base64.b64decode(text)
        for cipher in filter(None, ciphers):
            try:
                return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], webhook_id.bytes).decode()
            except InvalidTag:
                continue
        raise WebhookKeyUnreadable("the key was sealed under a key that BERTH_WEBHOOK_KEY_FILE does not hold")


def load_webhook_keys(path: Path) -> WebhookKeys:
    """Read the sealing keys. Raises ValueError if a line is not base64 of 32 bytes or there is none, OSError."""
    return WebhookKeys(read_keys(path, "webhook key"))


def _key_id(key: bytes) -> str:
    return hashlib.sha256(_KEY_ID + key).hexdigest()[:_KEY_ID_LENGTH]
