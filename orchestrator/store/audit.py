"""The record of what operators did."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.domain.states import Actor
from orchestrator.store.database import Transaction

_INSERT = """
insert into audit (principal_kind, principal_id, action, subject, detail, request_id)
values (:kind, :id, :action, :subject, cast(:detail as jsonb), :request_id)
"""


async def record(
    tx: Transaction, actor: Actor, action: str, subject: str, detail: dict[str, Any], request_id: str | None
) -> None:
    """Write down who did what to whom, in the transaction that did it."""
    values = {"kind": actor.kind.value, "id": actor.id, "action": action, "subject": subject}
    await tx.execute(_INSERT, {**values, "detail": json.dumps(detail, default=str), "request_id": request_id})
