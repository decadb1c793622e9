"""For receivers of webhooks: is this message Berth's, and what does it say? (Standard Webhooks 1.0, docs/reference/webhooks.md)

    event = verify_webhook(request.body, request.headers, secret)

A message may come more than once: take its `webhook-id` for the key by which you do it once. Public keys (`whpk_...`) need
the package `cryptography`; secrets (`whsec_...`) need nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence

from berth.client.requests.clocks import wall_seconds
from berth.client.webhook_errors import WebhookUnverified
from berth.process.json_objects import JsonObject

TOLERANCE_SECONDS = 300.0
HEADER_LENGTH_MAX = 8_192
SIGNATURES_MAX = 20
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)


def verify_webhook(
    body: bytes,
    headers: Mapping[str, str],
    *keys: str,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now_seconds: float | None = None,
) -> JsonObject:
    """The CloudEvents document, if one of `keys` (`whsec_...` or `whpk_...`) has signed exactly these bytes, lately.

    `headers` by any case of their names. `now_seconds`: since the epoch, default: this machine's clock. Raises
    `WebhookUnverified` for anything else; ValueError for a key that is none.
    """
    headers_given = {name.lower(): value for name, value in headers.items() if name.lower().startswith("webhook-")}
    message_id, timestamp, signatures = (
        headers_given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not message_id or not signatures or len(signatures) > HEADER_LENGTH_MAX:
        raise _unverified("headers are missing")
    if _WHOLE.fullmatch(timestamp) is None:
        raise _unverified("its timestamp is none")
    apart = abs(int(timestamp) - (wall_seconds() if now_seconds is None else now_seconds))
    if apart > tolerance_seconds:
        raise _unverified("its timestamp is too far from this machine's time")
    signed = f"{message_id}.{timestamp}.".encode(errors="replace") + body
    given = _signatures(signatures)
    if not any(_has_signed(key, signed, given) for key in keys):
        raise _unverified("none of its signatures is by a key that was given")
    try:
        document = json.loads(body)
    except ValueError as error:
        raise _unverified("it is signed, and no JSON") from error
    if not isinstance(document, dict):
        raise _unverified("it is signed, and no CloudEvents document")
    return document


def _signatures(text: str) -> Sequence[tuple[str, bytes]]:
    found = []
    for entry in text.split(" ")[:SIGNATURES_MAX]:
        version, _, encoded = entry.partition(",")
        try:
            found.append((version, base64.b64decode(encoded, validate=True)))
        except ValueError:
            continue  # of a version to come
    return found


def _has_signed(key: str, signed: bytes, given: Sequence[tuple[str, bytes]]) -> bool:
    kind, _, text = key.partition("_")
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("a key is whsec_ or whpk_ with base64 behind it") from None
    if kind == "whsec" and raw:
        expected = hmac.new(raw, signed, hashlib.sha256).digest()
        return any(hmac.compare_digest(expected, one) for version, one in given if version == "v1")
    if kind == "whpk" and len(raw) == 32:
        return any(_is_by(raw, signed, one) for version, one in given if version == "v1a")
    raise ValueError("a key is whsec_ or whpk_ with base64 behind it")


def _is_by(public_key: bytes, signed: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _unverified(why: str) -> WebhookUnverified:
    return WebhookUnverified(f"this is no message of Berth's: {why}", code="webhook_unverified")
