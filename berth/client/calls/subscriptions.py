"""Named subscriptions of notifications, one function per path (docs/reference/notifications.md)."""

from __future__ import annotations

from datetime import datetime

from berth.client.calls.call import Call, read, remove, segment
from berth.client.models import Answer

PATH = "/api/v1/notifications/subscriptions"


class NotificationSubscription(Answer):
    """Everything up to `version` is acknowledged; its place is kept until `kept_until`, if nothing is any more."""

    name: str
    version: int
    kept_until: datetime
    created_at: datetime
    updated_at: datetime


def list_notification_subscriptions() -> Call[list[NotificationSubscription]]:
    """Every named subscription of the tenant, or of the operators, by name."""
    return read(PATH, list[NotificationSubscription])


def delete_notification_subscription(name: str, *, idempotency_key: str | None = None) -> Call[None]:
    """Forget where it was; it keeps nothing of the log any more. Raises `NotFound`."""
    return remove(f"{PATH}/{segment(name)}", idempotency_key)
