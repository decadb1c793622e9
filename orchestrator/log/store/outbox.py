"""The outbox: events waiting to be sequenced. A row's id is drawn on insert, under the subject's lock (DESIGN §7)."""

from __future__ import annotations

import json

from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event

_INSERT = """
insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
values (:event_type, :correlation_id, :tenant_id, :subject, :operation_key, :request_id, cast(:payload as jsonb))
returning event_id
"""


async def append_event(tx: Transaction, event: Event) -> None:
    """Append an event; it reaches the log if and only if the transaction commits."""
    appended = await tx.execute(
        _INSERT,
        {
            "event_type": event.type.value,
            "correlation_id": event.correlation_id,
            "tenant_id": event.tenant_id,
            "subject": event.subject,
            "operation_key": event.operation_key,
            "request_id": event.request_id,
            "payload": json.dumps(event.payload, default=str),
        },
    )
    if event.operation_key is not None:
        tx.operation_event = appended.scalar_one()
