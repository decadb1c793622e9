"""Passwords of BMCs, sealed to one recipient by HPKE (RFC 9180): X25519, HKDF-SHA256, ChaCha20-Poly1305, base mode.

A sealed password opens only with the recipient's private key, and only as what it was sealed for: site, node, generation and
recipient are the `info` of HPKE, from which the key of the cipher is derived. The control plane stores the text and has no key.
The first part of the text names the format, so that another one can follow.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

FORMAT: Final = "berth-bmc-1"
DEPLOY_TOKEN_FORMAT: Final = "berth-deploy-1"
"""Of one-time tokens of deploy systems. A text of one format does not open as one of the other."""
PASSWORD_BYTES_MAX: Final = 128
NEW_PASSWORD_LENGTH: Final = 16
"""The longest that BMCs with IPMI 1.5 accept; 95 bits."""
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_CLASSES: Final = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


class SealBroken(Exception):
    """The text is not a password that was sealed to this key for this site, node and generation. The message has no secret."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a text is sealed for. `generation` counts the passwords of the node's BMC; of a token it is the deploy epoch."""

    site_id: UUID
    node_id: UUID
    generation: int
    format: str = FORMAT

    def info(self, recipient: UUID) -> bytes:
        """What the sealed text is bound to."""
        return "\n".join(
            (self.format, str(self.site_id), str(self.node_id), str(self.generation), str(recipient))
        ).encode()


def seal(password: str, purpose: Purpose, recipient: UUID, public_key: bytes) -> str:
    """The password for one recipient. Raises ValueError if it is empty or too long, or the key is no X25519 public key."""
    plain = password.encode()
    if not 1 <= len(plain) <= PASSWORD_BYTES_MAX:
        raise ValueError(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes; this one has {len(plain)}")
    sealed = _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(public_key), purpose.info(recipient))
    return f"{purpose.format}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"


def seal_to_all(password: str, purpose: Purpose, recipients: Mapping[UUID, bytes]) -> dict[UUID, str]:
    """The password for each recipient. Raises ValueError as `seal`."""
    return {recipient: seal(password, purpose, recipient, key) for recipient, key in recipients.items()}


def unseal(text: str, purpose: Purpose, recipient: UUID, private_key: X25519PrivateKey) -> str:
    """The password. Raises `SealBroken`."""
    name, _, encoded = text.partition(".")
    if name != purpose.format:
        raise SealBroken(f"the sealed text has another format than {purpose.format}")
    try:
        sealed = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        return _SUITE.decrypt(sealed, private_key, purpose.info(recipient)).decode()
    except (InvalidTag, ValueError) as error:
        raise SealBroken(
            "the sealed password is not for this key, or not for this site, node and generation"
        ) from error


def new_password() -> str:
    """A random password of letters and digits, with a lower-case and an upper-case letter and a digit."""
    alphabet = "".join(_CLASSES)
    while True:
        made = "".join(secrets.choice(alphabet) for _ in range(NEW_PASSWORD_LENGTH))
        if all(set(made) & set(one) for one in _CLASSES):
            return made


def new_key_pem() -> bytes:
    """A new X25519 private key as PEM (PKCS#8)."""
    return X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(path: Path) -> X25519PrivateKey:
    """The private key of a file. Raises OSError, or ValueError if it is no X25519 key."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, X25519PrivateKey):
        raise ValueError(f"{path.name} is not an X25519 key")
    return key


def fingerprint(public_key: bytes) -> str:
    """The first 32 hex digits of the SHA-256 of a public key, for people to compare."""
    return hashlib.sha256(public_key).hexdigest()[:32]
