"""Encrypts the secret inside a stored answer under the caller's credential, so that only that caller can read it.

A retry must get the first answer (P4), also when it holds a new key or token that is shown once and stored hashed. So
the answer is stored with the secret encrypted under a key derived from the caller's own API key or token, which the
database does not know either: HKDF (RFC 5869) and AES-256-GCM. The stored answer goes when its operation retires. An API
key lasts; a token does not, so a replay under a later token of the same principal cannot open what an earlier one sealed.
"""

from __future__ import annotations

import base64
import os
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SEALED_MEMBERS: Final = ("key", "token", "secret", "medium")
"""Members of stored answers that hold a secret: of an API key, an enrolment token, a webhook, a deploy medium."""
_PURPOSE: Final = b"berth: a secret in a stored answer"
_NONCE_BYTES: Final = 12


class Sealer:
    """Seals and opens for the holder of one API key or token."""

    def __init__(self, bearer: str) -> None:
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt=None, info=_PURPOSE).derive(bearer.encode()))

    def seal(self, secret: str) -> str:
        """The secret, encrypted."""
        nonce = os.urandom(_NONCE_BYTES)
        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, secret.encode(), None)).decode()

    def open(self, sealed: str) -> str:
        """The secret again. Raises InvalidTag if another key or token sealed it, or if it was altered."""
        raw = base64.urlsafe_b64decode(sealed)
        return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], None).decode()
