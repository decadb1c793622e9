"""Reads public keys in OpenSSH's one-line format, and only those that are still safe to let in.

The line ends up in an authorized_keys file, so it is rebuilt from its parts: no options before the key, no second line.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

LINE_LENGTH_MAX: Final = 16_384
COMMENT_LENGTH_MAX: Final = 255
RSA_BITS_MIN: Final = 2_048
TYPES: Final = frozenset(
    {
        "ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SshPublicKey:
    """A key as it is stored: `line` is canonical, `fingerprint` as `ssh-keygen -l` prints it (SHA256:...)."""

    line: str
    fingerprint: str


def read_ssh_public_key(text: str) -> SshPublicKey:
    """The key of one line. Raises ValueError with a sentence that says what is wrong with it."""
    if not text.strip().isprintable():
        raise ValueError("must be one line of printable characters")
    parts = text.split(maxsplit=2)
    if len(parts) < 2 or parts[0] not in TYPES:
        raise ValueError(f"must begin with one of {', '.join(sorted(TYPES))}, and nothing before it")
    if len(parts) == 3 and len(parts[2]) > COMMENT_LENGTH_MAX:
        raise ValueError(f"its comment may have at most {COMMENT_LENGTH_MAX} characters")
    try:
        blob = base64.b64decode(parts[1], validate=True)
        key = load_ssh_public_key(f"{parts[0]} {parts[1]}".encode())
    except (ValueError, binascii.Error, UnsupportedAlgorithm) as error:
        raise ValueError("is not a readable OpenSSH public key") from error
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        raise ValueError(f"an RSA key needs at least {RSA_BITS_MIN} bits, this one has {key.key_size}")
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return SshPublicKey(" ".join(part.strip() for part in parts), f"SHA256:{digest}")
