"""The text of a new API key, which the caller sees once; only its prefix and SHA-256 are stored. Pure but for randomness."""

from __future__ import annotations

import hashlib
import secrets
import string
from dataclasses import dataclass, field

PREFIX_LENGTH = 8
SECRET_BYTES = 32
PREFIX_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What is stored of a key's text: the prefix, which is shown, and the SHA-256 of the whole text."""

    prefix: str
    sha256: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Secret:
    """The text of a new key, drawn at random."""

    prefix: str = field(default_factory=lambda: "".join(secrets.choice(PREFIX_LETTERS) for _ in range(PREFIX_LENGTH)))
    random: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES), repr=False)

    @property
    def key(self) -> str:
        """The whole key, as a client sends it."""
        return f"berth_{self.prefix}_{self.random}"

    @property
    def stored(self) -> StoredSecret:
        """What is stored of it."""
        return StoredSecret(self.prefix, hashlib.sha256(self.key.encode()).digest())
