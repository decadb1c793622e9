"""`verify_webhook` accepts signed, recent messages and no others; the official library agrees."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as TheirWebhook

from berth.client import WebhookUnverified, verify_webhook
from orchestrator.webhooks.signatures import Signing, new_signing_key, signature_header

SECRET = new_signing_key(Signing.HMAC).secret
PAIR = new_signing_key(Signing.ED25519)
PUBLIC = PAIR.public_key or ""
BODY = b'{"specversion":"1.0","id":"a"}'


def headers(*keys: str, at: int | None = None, body: bytes = BODY) -> dict[str, str]:
    """Of a message signed by these keys."""
    timestamp = int(time.time()) if at is None else at
    return {
        "Webhook-Id": "m-1",
        "webhook-timestamp": str(timestamp),
        "WEBHOOK-SIGNATURE": signature_header(keys, "m-1", timestamp, body),
    }


def test_a_signed_message_is_accepted() -> None:
    for signing, given_keys in (
        ((SECRET,), (SECRET,)),
        ((PAIR.secret,), (PUBLIC,)),
        ((PAIR.secret, SECRET), (SECRET,)),
        ((SECRET, PAIR.secret), (PUBLIC,)),
        ((SECRET,), (new_signing_key(Signing.HMAC).secret, SECRET)),
    ):
        assert verify_webhook(BODY, headers(*signing), *given_keys) == {"specversion": "1.0", "id": "a"}
    told = {**headers(SECRET), "WEBHOOK-SIGNATURE": "v2,xyz v1,!!! " + headers(SECRET)["WEBHOOK-SIGNATURE"]}
    assert verify_webhook(BODY, told, SECRET)


def test_standardwebhooks_and_berth_make_the_same_signature() -> None:
    now = datetime.now(UTC)
    theirs = TheirWebhook(SECRET).sign("m-1", now, BODY.decode())
    assert theirs == signature_header([SECRET], "m-1", int(now.timestamp()), BODY)


@pytest.mark.parametrize("seconds", [-301, 301, -(10**9)])
def test_a_message_too_old_or_from_the_future_is_refused(seconds: int) -> None:
    now = int(time.time())
    with pytest.raises(WebhookUnverified):
        verify_webhook(BODY, headers(SECRET, at=now + seconds), SECRET, now_seconds=now)
    bound = 300 if seconds > 0 else -300
    assert verify_webhook(BODY, headers(SECRET, at=now + bound), SECRET, now_seconds=now)


def test_any_other_message_is_refused() -> None:
    good = headers(SECRET)
    other = new_signing_key(Signing.HMAC).secret
    for body, told, keys in (
        (BODY + b" ", good, [SECRET]),
        (BODY, good, [other]),
        (BODY, good, []),
        (BODY, good, [PUBLIC]),
        (BODY, {}, [SECRET]),
        (BODY, {**good, "Webhook-Id": "m-2"}, [SECRET]),
        (BODY, {**good, "webhook-timestamp": "1e9"}, [SECRET]),
        (BODY, {**good, "webhook-timestamp": "²"}, [SECRET]),
        (BODY, {**good, "webhook-timestamp": "9" * 400}, [SECRET]),
        (BODY, {**good, "WEBHOOK-SIGNATURE": ""}, [SECRET]),
        (BODY, {**good, "WEBHOOK-SIGNATURE": "v1," * 9_000}, [SECRET]),
        (BODY, {**good, "WEBHOOK-SIGNATURE": good["WEBHOOK-SIGNATURE"].replace("v1,", "v1a,")}, [SECRET, PUBLIC]),
        (b"[]", headers(SECRET, body=b"[]"), [SECRET]),
        (b"{", headers(SECRET, body=b"{"), [SECRET]),
    ):
        with pytest.raises(WebhookUnverified):
            verify_webhook(body, told, *keys)
    for key in ("", "x", "whsec_", "whsec_é", "whpk_AAAA", PAIR.secret):
        with pytest.raises(ValueError, match="a key is"):
            verify_webhook(BODY, good, key)


@given(st.binary(max_size=40), st.text(max_size=40), st.text(max_size=20), st.text(max_size=60))
def test_any_bytes_are_refused_with_a_named_error(
    body: bytes, message_id: str, timestamp: str, signatures: str
) -> None:
    told = {"webhook-id": message_id, "webhook-timestamp": timestamp, "webhook-signature": signatures}
    with pytest.raises(WebhookUnverified):
        verify_webhook(body, told, SECRET, PUBLIC, now_seconds=0)
    told["webhook-timestamp"] = "0"
    with pytest.raises(WebhookUnverified):
        verify_webhook(
            body, {**told, "webhook-signature": f"v1,{base64.b64encode(body).decode()}"}, SECRET, now_seconds=0
        )
