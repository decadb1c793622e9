"""Seal the signing keys of webhooks again, under the newest sealing key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.webhooks.keys import WebhookKeys, WebhookKeyUnreadable
from orchestrator.webhooks.store import sealed_keys
from orchestrator.webhooks.store.sealed_keys import WebhookToReseal

FIRST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Resealed:
    """Webhooks of one batch: sealed again, and with a key that cannot be read. `last`: where the next begins, or None."""

    resealed: int
    unreadable: int
    last: UUID | None


async def reseal_webhooks(context: Context, keys: WebhookKeys, *, after: UUID, limit: int) -> Resealed:
    """Seal the older keys of up to `limit` webhooks in one transaction; a key that cannot be read stays as it is."""

    async def effect(tx: Transaction) -> Resealed:
        found = await sealed_keys.lock_older(tx, keys.prefix, after=after, limit=limit)
        resealed = unreadable = 0
        for webhook in found:
            try:
                await sealed_keys.set_keys(tx, _reseal(webhook, keys))
                resealed += 1
            except WebhookKeyUnreadable:
                unreadable += 1
        return Resealed(resealed, unreadable, found[-1].id if len(found) == limit else None)

    return await transact(context, effect)


def _reseal(webhook: WebhookToReseal, keys: WebhookKeys) -> WebhookToReseal:
    return replace(webhook, keys=[_reseal_key(webhook.id, key, keys) for key in webhook.keys])


def _reseal_key(webhook_id: UUID, key: JsonObject, keys: WebhookKeys) -> JsonObject:
    if key["sealed"].startswith(keys.prefix):
        return key
    return {**key, "sealed": keys.seal(webhook_id, keys.open(webhook_id, key["sealed"]))}
