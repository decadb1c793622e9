"""Webhooks, one function per path. With a tenant's key the tenant's; with an operator's the operators'."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, write, written
from berth.client.models import Answer, Page
from berth.process.json_objects import JsonObject

PATH = "/api/v1/webhooks"


class Webhook(Answer):
    """An endpoint that receives events. `secret` (HMAC) is returned once, at creation; `public_keys` verify (Ed25519)."""

    id: UUID
    url: str
    description: str | None = None
    types: list[str]
    signing: str
    public_keys: list[str]
    state: str
    disabled_reason: str | None = None
    disabled_at: datetime | None = None
    failing_since: datetime | None = None
    position: int
    missed_before: int | None = None
    created_at: datetime
    updated_at: datetime
    secret: str | None = None


class Delivery(Answer):
    """A message to a webhook, and what came of it. `history`: its last attempts; `version` is None for a test message."""

    number: int
    version: int | None = None
    event_id: UUID
    event_type: str
    state: str
    attempts: int
    next_attempt_at: datetime | None = None
    attempted_at: datetime | None = None
    duration_ms: int | None = None
    response_status: int | None = None
    response_excerpt: str | None = None
    error: str | None = None
    history: list[JsonObject]
    created_at: datetime
    ended_at: datetime | None = None


class Replayed(Answer):
    """How many are sent again, how many are left for another call, and of how many the event is not kept any more."""

    replayed: int
    left: int
    truncated: int


def create_webhook(
    *,
    url: str,
    types: Sequence[str] | None = None,
    description: str | None = None,
    signing: Literal["hmac", "ed25519"] | None = None,
    idempotency_key: str | None = None,
) -> Call[Webhook]:
    """Send events to a URL from now on. Raises `WebhookUrlRefused`, `QuotaExceeded`."""
    body = {"url": url, "types": None if types is None else list(types), "description": description, "signing": signing}
    return write("POST", PATH, Webhook, body, idempotency_key)


def list_webhooks(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Webhook]]:
    """The caller's webhooks, without their secrets."""
    return read_page(PATH, Webhook, limit=limit, cursor=cursor)


def get_webhook(webhook_id: UUID) -> Call[Webhook]:
    """One webhook. Raises `NotFound`."""
    return read(f"{PATH}/{webhook_id}", Webhook)


def change_webhook(
    webhook_id: UUID,
    *,
    url: str | None = None,
    types: Sequence[str] | None = None,
    description: str | None = None,
    state: Literal["enabled", "disabled"] | None = None,
    idempotency_key: str | None = None,
) -> Call[Webhook]:
    """What is None stays. Enabled again, it begins with what comes next. Raises `NotFound`, `WebhookUrlRefused`."""
    body = {"url": url, "types": None if types is None else list(types), "description": description, "state": state}
    return write("PATCH", f"{PATH}/{webhook_id}", Webhook, body, idempotency_key)


def delete_webhook(webhook_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Send it nothing more. Raises `NotFound`."""
    return remove(f"{PATH}/{webhook_id}", idempotency_key)


def rotate_webhook(
    webhook_id: UUID, *, overlap_seconds: int | None = None, idempotency_key: str | None = None
) -> Call[Webhook]:
    """Sign by a new key; the older ones sign too for `overlap_seconds` (default: a day). Raises `WebhookKeysFull`."""
    body = {"overlap_seconds": overlap_seconds}
    return write("POST", f"{PATH}/{webhook_id}/rotate", Webhook, body, idempotency_key)


def send_test_message(webhook_id: UUID, *, idempotency_key: str | None = None) -> Call[Delivery]:
    """Send a test message; `get_delivery` returns its result. Raises `WebhookBusy`."""
    return write("POST", f"{PATH}/{webhook_id}/test", Delivery, None, idempotency_key)


def list_deliveries(
    webhook_id: UUID,
    *,
    state: Literal["pending", "succeeded", "failed"] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Delivery]]:
    """What it had to deliver, the newest first. Raises `NotFound`."""
    return read_page(f"{PATH}/{webhook_id}/deliveries", Delivery, state=state, limit=limit, cursor=cursor)


def get_delivery(webhook_id: UUID, number: int) -> Call[Delivery]:
    """One of them. Raises `NotFound`."""
    return read(f"{PATH}/{webhook_id}/deliveries/{number}", Delivery)


def replay_delivery(webhook_id: UUID, number: int, *, idempotency_key: str | None = None) -> Call[Delivery]:
    """Send one message again, at once. Raises `InvalidState` while the webhook is disabled or it is under way,
    `LogTruncated`, `WebhookBusy`.
    """
    return write("POST", f"{PATH}/{webhook_id}/deliveries/{number}/replay", Delivery, None, idempotency_key)


def replay_failed_deliveries(
    webhook_id: UUID, *, since: datetime, idempotency_key: str | None = None
) -> Call[Replayed]:
    """Send again what failed at this time or later. Raises `InvalidState`, `WebhookBusy`."""
    return write("POST", f"{PATH}/{webhook_id}/replay", Replayed, {"since": written(since)}, idempotency_key)
