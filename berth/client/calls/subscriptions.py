"""Named subscriptions of notifications, one function per path (docs/reference/notifications.md)."""

from __future__ import annotations

from datetime import datetime

from berth.client.calls.call import Call, read_page, remove, segment
from berth.client.models import Answer, Page

PATH = "/api/v1/notifications/subscriptions"


class NotificationSubscription(Answer):
    """Everything up to `version` is acknowledged; its place is kept until `kept_until`, if nothing is any more."""

    name: str
    version: int
    kept_until: datetime
    created_at: datetime
    updated_at: datetime


def list_notification_subscriptions(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[NotificationSubscription]]:
    """The named subscriptions of the tenant, or of the operators, by name."""
    return read_page(PATH, NotificationSubscription, limit=limit, cursor=cursor)


def delete_notification_subscription(name: str, *, idempotency_key: str | None = None) -> Call[None]:
    """Forget where it was; it keeps nothing of the log any more. Raises `NotFound`."""
    return remove(f"{PATH}/{segment(name)}", idempotency_key)
