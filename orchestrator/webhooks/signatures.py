"""Signs webhook messages and generates signing keys, as Standard Webhooks 1.0 specifies (standardwebhooks.com).

The signed content is `<webhook-id>.<webhook-timestamp>.<body>`. `v1` is HMAC-SHA256 with a secret `whsec_<base64>`; `v1a` is
Ed25519 with a key `whsk_<base64 of seed and public key>`, its public half is `whpk_<base64>`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SECRET_BYTES: Final = 32


class Signing(StrEnum):
    """The signature scheme of a webhook."""

    HMAC = "hmac"
    ED25519 = "ed25519"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A signing key. An HMAC secret is shown once; `public_key` (Ed25519 only) verifies signatures."""

    secret: str
    public_key: str | None


def new_signing_key(signing: Signing) -> SigningKey:
    """Generate a random signing key."""
    if signing is Signing.HMAC:
        return SigningKey(f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}", None)
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    seed = key.private_bytes_raw()
    return SigningKey(f"whsk_{base64.b64encode(seed + public).decode()}", f"whpk_{base64.b64encode(public).decode()}")


def signature_header(keys: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature per key, newest first, separated by spaces."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(_sign(key, signed) for key in keys)


def _sign(key: str, signed: bytes) -> str:
    kind, _, text = key.partition("_")
    raw = base64.b64decode(text, validate=True)
    if kind == "whsec":
        return f"v1,{base64.b64encode(hmac.new(raw, signed, hashlib.sha256).digest()).decode()}"
    assert kind == "whsk", "keys are whsec_ or whsk_"
    signature = Ed25519PrivateKey.from_private_bytes(raw[:SECRET_BYTES]).sign(signed)
    return f"v1a,{base64.b64encode(signature).decode()}"
