"""The record of what operators did."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.tenants.principals import Actor

_INSERT = """
insert into audit (principal_kind, principal_id, action, subject, detail, request_id)
values (:kind, :id, :action, :subject, cast(:detail as jsonb), :request_id)
"""


async def record(
    tx: Transaction, actor: Actor, action: str, subject: str, detail: dict[str, Any], request_id: str | None
) -> None:
    """Record an action, its actor and its subject, in the transaction of the action."""
    values = {"kind": actor.kind.value, "id": actor.id, "action": action, "subject": subject}
    await tx.execute(_INSERT, {**values, "detail": json.dumps(detail, default=str), "request_id": request_id})


@dataclass(frozen=True, slots=True)
class Entry:
    """An audited action, its actor, its subject and its time."""

    id: int
    at: datetime
    principal: dict[str, str]
    action: str
    subject: str
    detail: dict[str, Any]
    request_id: str | None


_LIST = """
select id, at, jsonb_build_object('kind', principal_kind, 'id', principal_id) as principal, action, subject, detail,
       request_id
from audit where id > :after and (cast(:subject as text) is null or subject = :subject) order by id limit :limit
"""


async def list_entries(reading: Reading, *, subject: str | None, after: int, limit: int) -> list[Entry]:
    """Up to `limit` entries, oldest first, about one object or all."""
    rows = await reading.execute(_LIST, {"subject": subject, "after": after, "limit": limit})
    return [Entry(**row._mapping) for row in rows]
