"""The retry schedule of webhook deliveries, the outcome of an attempt, and the refusals. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from berth.process.json_objects import JsonMapping
from orchestrator.log.event_messages import TEST_TYPE
from orchestrator.problems import Problem

SCHEDULE_SECONDS: Final = (0.0, 5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Pause before the first attempt, the second, and so on (Standard Webhooks 1.0, "Deliverability and reliability")."""
ATTEMPTS_MAX: Final = len(SCHEDULE_SECONDS)
JITTER: Final = 0.1
"""The largest random extension of a pause, as a fraction of it."""
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
"""Longest `Retry-After` that is honoured."""
EXCERPT_LENGTH_MAX: Final = 1_000
GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of an attempt. `error`: why it failed without a response; `retry_after_seconds`: from `Retry-After`."""

    duration_ms: int
    response_status: int | None = None
    response_excerpt: str | None = None
    error: str | None = None
    retry_after_seconds: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the endpoint answered 2xx."""
        return self.error is None and self.response_status is not None and 200 <= self.response_status < 300

    @property
    def is_gone(self) -> bool:
        """Whether the endpoint answered 410, which disables the webhook."""
        return self.error is None and self.response_status == GONE


def pause_seconds(attempts: int, asked_seconds: float | None, chance: float) -> float | None:
    """Return the pause after the given number of failed attempts; None after the last. `chance` (0 to 1) spreads retries."""
    if attempts >= ATTEMPTS_MAX:
        return None
    planned = SCHEDULE_SECONDS[attempts] * (1 + JITTER * chance)
    return max(planned, min(asked_seconds or 0.0, RETRY_AFTER_SECONDS_MAX))


def document_of_test(message_id: str, time: str, webhook_id: str) -> JsonMapping:
    """Return the CloudEvents document of a test message."""
    return {
        "specversion": "1.0",
        "id": message_id,
        "source": "/berth/webhooks",
        "type": f"berth.{TEST_TYPE}",
        "time": time,
        "subject": f"webhooks/{webhook_id}",
        "datacontenttype": "application/json",
        "data": {"webhook_id": webhook_id},
    }


class WebhookUrlRefused(Problem):
    """This deployment does not send webhooks to this URL; `reason` is `http`, `port` or `private_address`."""

    status, code, title = 422, "webhook_url_refused", "Webhook URL refused"


class WebhookKeysFull(Problem):
    """The bound on live signing keys is reached: overlaps of earlier rotations are not over."""

    status, code, title, business = 409, "webhook_keys_full", "Webhook keys full", True


class WebhookBusy(Problem):
    """The bound on pending deliveries of a webhook is reached."""

    status, code, title, business = 409, "webhook_busy", "Webhook busy", True


class WebhooksUnavailable(Problem):
    """This process has no webhook key, which encrypts the keys of webhooks."""

    status, code, title = 503, "webhooks_unavailable", "Webhooks unavailable"
