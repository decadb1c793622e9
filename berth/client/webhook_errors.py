"""What webhooks are refused with, and what a receiver refuses."""

from __future__ import annotations

from berth.client.errors import BerthError, Invalid, Refused, Unavailable


class WebhookUrlRefused(Invalid):
    """The deployment sends nothing there; `extra["reason"]` is `http`, `port` or `private_address`."""

    codes = ("webhook_url_refused",)


class WebhookKeysFull(Refused):
    """The limit of overlapping signing keys is reached: earlier rotations still overlap."""

    codes = ("webhook_keys_full",)


class WebhookBusy(Refused):
    """The limit of pending deliveries of the webhook is reached."""

    codes = ("webhook_busy",)


class WebhooksUnavailable(Unavailable):
    """The server has no key under which the keys of webhooks are kept."""

    codes = ("webhooks_unavailable",)


class WebhookUnverified(BerthError):
    """A message that came as a webhook's is not signed by a key that is known, or not lately."""

    codes = ("webhook_unverified",)
