"""Bugs planted into webhooks, metering, payments, quotas and rates."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tests.testbuild.bugs_of_control_plane import commit_key_apart
from tests.testbuild.planting import replace, rewrite, rewritten_function


def deliver_before_the_response() -> None:
    """A delivery is recorded as succeeded before its message is sent."""
    from orchestrator.webhooks.rules import Attempt
    from worker.webhooks import dispatching

    genuine, record_attempt = dispatching.Dispatcher._attempt, vars(dispatching)["record_attempt"]

    async def attempt(self: Any, delivery: Any) -> Any:
        accepted = Attempt(0, response_status=204)
        await record_attempt(
            self._context, delivery, accepted, pause_seconds=None, failing_seconds_max=self._bounds.failing_seconds_max
        )
        return await genuine(self, delivery)

    replace(dispatching.Dispatcher, "_attempt", attempt)


def send_events_of_every_tenant() -> None:
    """A tenant's webhook reads the events of every tenant."""
    from orchestrator.webhooks.store import dispatch

    rewrite(dispatch, "_ADVANCE", "where log.tenant_id = due.tenant_id and log.version", "where log.version")


def draw_a_message_id_for_each_attempt() -> None:
    """Each attempt has another `webhook-id`."""
    from worker.webhooks import dispatching

    genuine = vars(dispatching)["Message"]
    replace(dispatching, "Message", lambda _, *rest: genuine(str(uuid.uuid4()), *rest))


def send_to_deleted_webhooks() -> None:
    """A deleted webhook keeps its keys and its pending deliveries, and they are sent."""
    from orchestrator.webhooks.store import dispatch, webhooks

    rewrite(webhooks, "_DELETE", "keys = '[]', ", "")
    rewrite(webhooks, "_FAIL_PENDING", "where webhook_id = :id", "where webhook_id = :id and false")
    rewrite(dispatch, "_LEASE", "and w.state <> 'deleted'", "")


def send_to_suspended_tenants() -> None:
    """The webhooks of a suspended tenant go on."""
    from orchestrator.webhooks.store import dispatch

    is_active = "exists (select from tenants t where t.id = w.tenant_id and t.state = 'active')"
    for statement in ("_LOCK_BEHIND", "_PENDING_WORK", "_LEASE"):
        rewrite(dispatch, statement, is_active, "true")


def sign_by_the_oldest_key() -> None:
    """After a rotation the older key signs alone."""
    from worker.webhooks.dispatching import Dispatcher

    genuine = Dispatcher._readable_keys
    replace(Dispatcher, "_readable_keys", lambda self, delivery: genuine(self, delivery)[-1:])


def move_webhooks_to_the_head() -> None:
    """A webhook's position becomes the log's head, also where one transaction read only a part of the events."""
    from orchestrator.webhooks.store import dispatch

    rewrite(dispatch, "_ADVANCE", "case when r.events < :batch then r.head else r.last end", "r.head")


def store_the_position_first() -> None:
    """A consumer commits its position, and then the effect of the events before it."""
    from berth.client import consumer
    from berth.client.consumer_positions import lock_position, move_position

    async def commit(self: Any, connection: Any, events: Any) -> None:
        async with connection.transaction():
            position = await lock_position(connection, self._table, self._name)
            fresh = consumer._following(position, events)
            if fresh:
                position = fresh[-1].version
                await move_position(connection, self._table, self._name, position)
        async with connection.transaction():
            wanted = [one for one in fresh if self._event_types is None or one.event_type in self._event_types]
            if wanted:
                await self._handle(connection, wanted)
        self.position, self._tries = position, 0

    replace(consumer.Consumer, "_commit", commit)


def pay_apart_from_the_key() -> None:
    """A payment's key is stored after the payment, and the ledger does not look for it."""
    from orchestrator.billing.store import payments

    async def find(*_: Any) -> None:
        """No earlier line is found."""

    commit_key_apart()
    replace(payments, "_find", find)


def release_without_a_second_look() -> None:
    """Billing releases what it found, whatever was paid meanwhile."""
    from orchestrator.billing import commands

    async def is_depleted(*_: Any) -> bool:
        return True

    replace(commands, "is_depleted", is_depleted)


def let_depleted_tenants_create() -> None:
    """A depletion is an event, and the tenant is not marked as depleted."""
    from orchestrator.billing.store import balances

    rewrite(balances, "_STORE_DEPLETED", "where id = :tenant_id", "where id = :tenant_id and false")


def keep_quota() -> None:
    """A final state does not return the tenant's quota."""
    from orchestrator.allocations.store import advance

    rewrite(advance, "_RETURN_QUOTA", "gpus_used - :gpus", "gpus_used - 0 * :gpus")


def return_quota_twice() -> None:
    """A final state returns the tenant's quota twice."""
    from orchestrator.allocations.store import advance

    rewrite(advance, "_RETURN_QUOTA", "gpus_used - :gpus", "greatest(0, gpus_used - 2 * :gpus)")


def limit_endings() -> None:
    """Releases, cancels and confirms count against the rate."""
    from orchestrator.http import principal_limits

    replace(principal_limits, "ENDING_VERB", "none")


def share_one_bucket() -> None:
    """All principals share one rate, the lowest."""
    from orchestrator.http.rate_limits import RateLimits

    genuine = RateLimits.take

    def take(self: Any, principal: Any, of: Any) -> None:
        genuine(self, next(iter(self._own), principal), of)

    replace(RateLimits, "take", take)


def forget_rates() -> None:
    """No rate refuses anything."""
    from orchestrator.http.rate_limits import RateLimits

    replace(RateLimits, "take", lambda *_: None)


ACCOUNT_BUGS: dict[str, Callable[[], None]] = {
    "delivered_before_response": deliver_before_the_response,
    "webhook_of_every_tenant": send_events_of_every_tenant,
    "message_id_of_attempt": draw_a_message_id_for_each_attempt,
    "deleted_webhooks_sent": send_to_deleted_webhooks,
    "suspended_tenants_sent": send_to_suspended_tenants,
    "new_keys_unused": sign_by_the_oldest_key,
    "webhook_skips_events": move_webhooks_to_the_head,
    "position_before_ledger": store_the_position_first,
    "payment_apart_from_key": pay_apart_from_the_key,
    "release_after_payment": release_without_a_second_look,
    "depleted_tenants_create": let_depleted_tenants_create,
    "quota_kept": keep_quota,
    "quota_returned_twice": return_quota_twice,
    "endings_limited": limit_endings,
    "one_rate_for_all": share_one_bucket,
    "rates_forgotten": forget_rates,
}
"""By name, those of processes."""
ACCOUNT_SQL: dict[str, str] = {
    "metered_twice": "drop index ledger_usage_once; drop trigger metering_intervals_close_once on metering_intervals;"
    + rewritten_function("meter", ("and i.ended_at is null", "")),
    "payment_apart_from_key": "drop index ledger_payment_once;",
}
"""By name, those of the database."""
