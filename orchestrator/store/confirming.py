"""Confirms a hold in one server-side call (`confirm_once`, migrations): state, operation and event together (P2, P5)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from orchestrator.store.database import Transaction
from orchestrator.store.operations import Operation

_CONFIRM = """
select confirm_once(:tenant_id, :key, :fingerprint, :retention_seconds, :id, :holder_id, :request_id)
"""


async def confirm_once(
    tx: Transaction, operation: Operation, tenant_id: UUID, reservation_id: UUID, holder_id: str
) -> dict[str, Any]:
    """What became of it, in the words of `confirm_once`. Everything but `ok` and `noop` leaves nothing behind.

    Judged by the clock after the reservation's lock, which is the only one that it takes.
    """
    values = {
        "tenant_id": tenant_id, "key": operation.key, "fingerprint": operation.fingerprint,
        "retention_seconds": operation.retention_seconds, "id": reservation_id, "holder_id": holder_id,
        "request_id": operation.request_id,
    }  # fmt: skip
    outcome: dict[str, Any] = (await tx.execute(_CONFIRM, values)).scalar_one()
    return outcome
