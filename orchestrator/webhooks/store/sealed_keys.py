"""SQL for signing keys that are sealed under an older sealing key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Transaction

# Deleted webhooks have no keys. A locked webhook is left out; the next pass finds it.
_LOCK_OLDER = """
select w.id, w.keys from webhooks w
where w.id > :after and w.state <> 'deleted'
  and exists (select from jsonb_array_elements(w.keys) key where not starts_with(key ->> 'sealed', :prefix))
order by w.id limit :limit for no key update of w skip locked
"""
_SET_KEYS = "update webhooks set keys = cast(:keys as jsonb) where id = :id"


@dataclass(frozen=True, slots=True)
class WebhookToReseal:
    """A locked webhook and its keys as stored: `sealed`, `public_key`, `until`."""

    id: UUID
    keys: Sequence[JsonObject]


async def lock_older(tx: Transaction, prefix: str, *, after: UUID, limit: int) -> list[WebhookToReseal]:
    """Lock up to `limit` webhooks after `after`, by id, with a key whose sealed text does not begin with `prefix`."""
    rows = await tx.execute(_LOCK_OLDER, {"prefix": prefix, "after": after, "limit": limit})
    return [WebhookToReseal(**row._mapping) for row in rows]


async def set_keys(tx: Transaction, webhook: WebhookToReseal) -> None:
    """Store the keys of a locked webhook."""
    await tx.execute(_SET_KEYS, {"id": webhook.id, "keys": json.dumps(webhook.keys)})
