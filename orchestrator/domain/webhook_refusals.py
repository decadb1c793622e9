"""What can be refused about webhooks (docs/webhooks.md)."""

from __future__ import annotations

from orchestrator.domain.errors import Problem


class WebhookUrlRefused(Problem):
    """This deployment sends nothing there; `reason` is `http` or `private_address`."""

    status, code, title = 422, "webhook_url_refused", "Webhook URL refused"


class WebhooksFull(Problem):
    """There are as many webhooks as there may be."""

    status, code, title, business = 409, "webhooks_full", "Webhooks full", True


class WebhookKeysFull(Problem):
    """As many older keys sign still as may: the overlaps of earlier rotations are not over."""

    status, code, title, business = 409, "webhook_keys_full", "Webhook keys full", True


class WebhookBusy(Problem):
    """As many deliveries wait for their attempts as may."""

    status, code, title, business = 409, "webhook_busy", "Webhook busy", True


class WebhooksUnavailable(Problem):
    """This process has no task signing key, under which the keys of webhooks are kept."""

    status, code, title = 503, "webhooks_unavailable", "Webhooks unavailable"
