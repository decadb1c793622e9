"""Each bug of webhooks, money, quotas and rates with its scene and the checks that find it."""

from __future__ import annotations

from collections.abc import Callable

from tests.campaign.directed.accounts import billing, quotas, webhooks
from tests.campaign.directed.scene import Scene

ACCOUNT_SCENES: list[tuple[str, Callable[[Scene], None], tuple[str, ...]]] = [
    ("delivered_before_response", webhooks.an_endpoint_that_refuses_first, ("webhook delivered",)),
    ("webhook_of_every_tenant", webhooks.events_of_two_tenants, ("webhook tenant", "webhook complete")),
    ("message_id_of_attempt", webhooks.an_endpoint_that_refuses_first, ("webhook id", "webhook content")),
    ("deleted_webhooks_sent", webhooks.a_webhook_that_is_deleted, ("webhook stopped",)),
    ("suspended_tenants_sent", webhooks.an_event_of_a_suspended_tenant, ("webhook stopped",)),
    ("new_keys_unused", webhooks.a_message_after_a_rotation, ("webhook signed",)),
    ("webhook_skips_events", webhooks.more_events_than_one_batch, ("webhook complete",)),
    ("position_before_ledger", billing.metering_that_dies_before_its_commit, ("ledger", "verify billing")),
    ("metered_twice", billing.events_that_are_metered_again, ("ledger", "balance")),
    ("payment_apart_from_key", billing.one_payment_twice_at_once, ("paid once", "balance")),
    ("release_after_payment", billing.a_payment_before_the_release, ("balance",)),
    ("depleted_tenants_create", billing.a_create_after_the_depletion, ("balance",)),
    ("quota_kept", quotas.a_create_after_a_release, ("quota returned", "verify quota")),
    ("quota_returned_twice", quotas.a_create_after_a_release, ("quota kept",)),
    ("endings_limited", quotas.a_tenant_beyond_its_rate, ("limited",)),
    ("one_rate_for_all", quotas.a_tenant_beyond_its_rate, ("limited",)),
    ("rates_forgotten", quotas.a_tenant_beyond_its_rate, ("limited",)),
]
