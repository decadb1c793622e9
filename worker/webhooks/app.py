"""Constructs the objects of the webhook sender and supervises its loops. It needs the database and no other server."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial

import structlog

from orchestrator.database.transactions import connect_database
from orchestrator.heap import settle_heap
from orchestrator.operations.execution import Context, Limits
from orchestrator.webhooks.keys import WebhookKeys, load_webhook_keys
from worker.health import Health, ask_database, examine_for_ever
from worker.problems import CannotRun
from worker.startup import await_database
from worker.supervision import supervise
from worker.sweepers.runner import SweepRunner
from worker.sweepers.sweeper import Sweeper
from worker.webhooks.deliveries import INTERVAL_SECONDS, sweep_expired_webhooks, sweep_webhook_deliveries
from worker.webhooks.destinations import Resolver
from worker.webhooks.dispatching import Dispatcher
from worker.webhooks.resealing import reseal_for_ever
from worker.webhooks.sending import Sender
from worker.webhooks.settings import WebhookSettings

log = structlog.get_logger()


def make_context(settings: WebhookSettings) -> Context:
    """The context of the sender's commands. It has no signer: the sender issues no tasks."""
    database = connect_database(
        settings.database_url,
        pool_size=settings.database_pool_size,
        reserve_size=1,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application="berth-webhooks",
    )
    return Context(database, Limits())


def read_keys(settings: WebhookSettings) -> WebhookKeys:
    """The keys that seal webhooks' secrets. Raises `CannotRun` if they cannot be read."""
    try:
        return load_webhook_keys(settings.webhook_key_file)
    except (OSError, ValueError) as error:
        raise CannotRun(f"the webhook keys cannot be used: {error}") from error


def make_sweepers(context: Context, settings: WebhookSettings) -> list[Sweeper]:
    """Every sweeper of the webhook sender."""
    delete = partial(
        sweep_webhook_deliveries, context, settings.webhook_delivery_retention_seconds,
        settings.webhook_deliveries_kept_max,
    )  # fmt: skip
    return [
        Sweeper("webhook_deliveries", INTERVAL_SECONDS, delete, "finished webhook deliveries past their retention"),
        Sweeper(
            "expired_webhooks", INTERVAL_SECONDS, partial(sweep_expired_webhooks, context), "webhooks of expired keys"
        ),
    ]


async def run_webhooks(settings: WebhookSettings, health: Health, stop: asyncio.Event) -> None:
    """Run until `stop` is set. Raises `CannotRun` if the database is missing, a key is unreadable, or a loop ends."""
    keys = read_keys(settings)
    context = make_context(settings)
    try:
        await await_database(context.database, settings.startup_seconds_max, health)
        runner = SweepRunner(make_sweepers(context, settings), INTERVAL_SECONDS)
        loops = {
            asyncio.create_task(_deliver(context, keys, settings), name="webhooks"),
            asyncio.create_task(reseal_for_ever(context, keys), name="webhook keys"),
            asyncio.create_task(runner.run(), name="sweepers"),
            asyncio.create_task(
                examine_for_ever(health, {"database": ask_database(context.database)}), name="readiness"
            ),
        }
        settle_heap()
        health.started = True
        log.info("webhooks_started")
        await supervise(loops, stop)
    finally:
        await context.database.close()


async def _deliver(context: Context, keys: WebhookKeys, settings: WebhookSettings) -> None:
    resolver = Resolver(settings.webhook_attempts_max)
    sender = Sender(
        resolver.resolve,
        timeout_seconds=settings.webhook_timeout_seconds,
        http_allowed=settings.webhook_http_allowed,
        private_allowed=settings.webhook_private_addresses_allowed,
        ports=settings.webhook_ports,
        tls=ssl.create_default_context(),
    )
    try:
        await Dispatcher(context, keys, sender, settings.webhook_bounds()).run()
    finally:
        resolver.close()
