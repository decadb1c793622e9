"""Outcomes of delivery attempts, disabling of webhooks that fail, and counts for metrics."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store.dispatch import LeasedDelivery

HISTORY_MAX = 20
"""Attempts kept in a delivery's history."""
_LOCK_FAILED = """
select w.state, w.tenant_id, clock_timestamp() - coalesce(w.failing_since, clock_timestamp()) >=
       make_interval(secs => :failing_seconds_max) as too_long
from webhooks w where w.id = :webhook_id for no key update
"""
_MARK_FAILING = """
update webhooks set failing_since = clock_timestamp() where id = :webhook_id and failing_since is null and state = 'enabled'
"""
_CLEAR_FAILING = "update webhooks set failing_since = null where id = :webhook_id and failing_since is not null"
_END = """
update webhook_deliveries d set
    leased = false, duration_ms = :duration_ms, response_status = :response_status, response_excerpt = :response_excerpt,
    error = coalesce(:end_error, :error), state = :state,
    next_attempt_at = case when :state = 'pending' then clock_timestamp() + make_interval(secs => :pause_seconds) end,
    ended_at = case when :state <> 'pending' then clock_timestamp() end,
    history = case when jsonb_array_length(d.history) >= :history_max then d.history - 0 else d.history end || jsonb_build_array(
        jsonb_build_object(
            'at', rfc3339(d.attempted_at),
            'duration_ms', cast(:duration_ms as integer), 'response_status', cast(:response_status as integer),
            'error', cast(:error as text)))
where d.webhook_id = :webhook_id and d.number = :number and d.claims = :lease_number and d.leased
"""
_DISABLE = """
update webhooks set state = 'disabled', disabled_reason = :reason, disabled_at = clock_timestamp(), updated_at = clock_timestamp()
where id = :webhook_id and state = 'enabled' returning tenant_id, url
"""
_EXPIRED = """
select id from webhooks where state = 'enabled' and key_expires_at <= statement_timestamp()
order by key_expires_at, id limit :limit for no key update skip locked
"""
_COUNTS = """
select (select count(*) from webhooks where state = 'enabled') as enabled,
       (select count(*) from webhooks where state = 'disabled') as disabled,
       (select count(*) from webhooks where state = 'enabled' and failing_since is not null) as failing,
       (select count(*) from webhook_deliveries where state = 'pending') as pending,
       (select coalesce(extract(epoch from clock_timestamp() - min(next_attempt_at)), 0)::float8 from webhook_deliveries
        where state = 'pending' and next_attempt_at < statement_timestamp()) as oldest_due_seconds,
       (select coalesce(max(h.version + 1 - c.needs_from), 0) from log_cursors c cross join log_head h where c.kind = 'webhook')
       as lag_versions
"""


async def record_success(tx: Transaction, delivery: LeasedDelivery, attempt: Attempt) -> bool:
    """End a delivery as succeeded; False if its lease has passed to another dispatcher or it has ended already."""
    await tx.execute(_CLEAR_FAILING, {"webhook_id": delivery.webhook_id})
    return await _end(tx, delivery, attempt, "succeeded", 0.0)


async def record_failure(
    tx: Transaction, delivery: LeasedDelivery, attempt: Attempt, pause_seconds: float | None, failing_seconds_max: float
) -> tuple[bool, bool]:
    """Schedule the next attempt after the pause, or end the delivery as failed; locks the webhook.

    It ends after the last attempt (`pause_seconds` None), for a test message, and if the webhook is not enabled any more: the
    delivery's error says so then, and the outcome is in its history. Returns whether the outcome was recorded (False as for
    `record_success`), and whether the webhook has failed for too long.
    """
    values = {"webhook_id": delivery.webhook_id, "failing_seconds_max": failing_seconds_max}
    webhook = (await tx.execute(_LOCK_FAILED, values)).one()
    unfinished = pause_seconds is not None and delivery.version is not None
    again = unfinished and webhook.state == "enabled"
    end_error = f"webhook_{webhook.state}" if unfinished and not again else None
    recorded = await _end(tx, delivery, attempt, "pending" if again else "failed", pause_seconds or 0.0, end_error)
    if not recorded or delivery.version is None:
        return recorded, False
    await tx.execute(_MARK_FAILING, {"webhook_id": delivery.webhook_id})
    return True, bool(webhook.too_long)


async def disable(tx: Transaction, webhook_id: UUID, reason: str) -> bool:
    """Disable a webhook; False if it was not enabled."""
    return (await tx.execute(_DISABLE, {"webhook_id": webhook_id, "reason": reason})).first() is not None


async def lock_expired(tx: Transaction, limit: int) -> list[UUID]:
    """Lock at most `limit` enabled webhooks whose key has expired, the earliest first; those that are locked are left out."""
    return list((await tx.execute(_EXPIRED, {"limit": limit})).scalars())


async def _end(
    tx: Transaction,
    delivery: LeasedDelivery,
    attempt: Attempt,
    state: str,
    pause_seconds: float,
    end_error: str | None = None,
) -> bool:
    done = await tx.execute(
        _END,
        {
            "webhook_id": delivery.webhook_id, "number": delivery.number, "lease_number": delivery.lease_number,
            "state": state, "duration_ms": attempt.duration_ms, "response_status": attempt.response_status,
            "response_excerpt": attempt.response_excerpt, "error": attempt.error, "end_error": end_error,
            "pause_seconds": pause_seconds, "history_max": HISTORY_MAX,
        },
    )  # fmt: skip
    return done.rowcount == 1


@dataclass(frozen=True, slots=True)
class WebhookCounts:
    """Counts over all webhooks. `lag_versions`: versions of the log that the slowest webhook still needs."""

    enabled: int
    disabled: int
    failing: int
    pending: int
    oldest_due_seconds: float
    lag_versions: int


async def count_webhooks(reading: Reading) -> WebhookCounts:
    """Return counts over all webhooks."""
    return WebhookCounts(**(await reading.execute(_COUNTS)).one()._mapping)
