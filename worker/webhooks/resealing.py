"""Seals the signing keys of webhooks again after the webhook key was rotated."""

from __future__ import annotations

import asyncio

import structlog

from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.webhooks.commands.resealing import FIRST, reseal_webhooks
from orchestrator.webhooks.keys import WebhookKeys
from worker.webhooks.metrics import WEBHOOK_KEYS_UNREADABLE, WEBHOOKS_RESEALED

BATCH_MAX = 500
INTERVAL_SECONDS = 15.0

log = structlog.get_logger()


async def reseal_for_ever(context: Context, keys: WebhookKeys) -> None:
    """Reseal at start and then every 15 s until cancelled. Retries while the database is unavailable."""
    while True:
        try:
            await reseal_all(context, keys)
        except Problem as problem:
            log.warning("webhook_keys_not_resealed", why=str(problem))
        await asyncio.sleep(INTERVAL_SECONDS)


async def reseal_all(context: Context, keys: WebhookKeys) -> int:
    """Seal every key under the first webhook key that is sealed under another; return how many webhooks had one.

    A key that no webhook key opens stays as it is and is counted in a gauge.
    """
    resealed = unreadable = 0
    after = FIRST
    while True:
        batch = await reseal_webhooks(context, keys, after=after, limit=BATCH_MAX)
        resealed += batch.resealed
        unreadable += batch.unreadable
        WEBHOOKS_RESEALED.inc(batch.resealed)
        if batch.last is None:
            break
        after = batch.last
    WEBHOOK_KEYS_UNREADABLE.set(unreadable)
    if resealed or unreadable:
        log.info("webhook_keys_resealed", webhooks=resealed, unreadable=unreadable)
    return resealed
