"""The webhook sender's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

LATENCIES_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

WEBHOOK_ATTEMPTS = Counter("berth_webhook_attempts_total", "Attempts to deliver to webhooks, by outcome", ["outcome"])
for outcome in ("succeeded", "failed"):
    WEBHOOK_ATTEMPTS.labels(outcome)
WEBHOOK_ATTEMPT_SECONDS = Histogram(
    "berth_webhook_attempt_seconds", "Duration of a delivery attempt", buckets=LATENCIES_SECONDS
)
WEBHOOK_ATTEMPTS_UNDER_WAY = Gauge("berth_webhook_attempts_under_way", "Delivery attempts in flight in this process")
WEBHOOKS = Gauge(
    "berth_webhooks", "Webhooks by state; `failing` counts enabled webhooks whose last attempt failed", ["state"]
)
WEBHOOK_DELIVERIES_PENDING = Gauge("berth_webhook_deliveries_pending", "Deliveries that wait for an attempt")
WEBHOOK_OLDEST_DUE_SECONDS = Gauge(
    "berth_webhook_oldest_due_seconds", "How long the oldest pending delivery has been due"
)
WEBHOOK_LAG_VERSIONS = Gauge("berth_webhook_lag_versions", "Versions of the log that the webhook furthest behind needs")
WEBHOOKS_DISABLED = Counter(
    "berth_webhooks_disabled_total",
    "Webhooks disabled because of their endpoint's responses, or because their key expired",
    ["reason"],
)
for reason in ("gone", "failing", "key_expired"):
    WEBHOOKS_DISABLED.labels(reason)
WEBHOOKS_RESEALED = Counter(
    "berth_webhooks_resealed_total", "Webhooks whose keys this process sealed again under the newest webhook key"
)
WEBHOOK_KEYS_UNREADABLE = Gauge(
    "berth_webhook_keys_unreadable", "Webhooks with a key that no key of BERTH_WEBHOOK_KEY_FILE opens"
)
WEBHOOKS_STOPPED = Gauge("berth_webhooks_stopped", "1 while the dispatcher cannot query the database")
