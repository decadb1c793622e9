"""The outbox: events waiting to be sequenced. A row's id is drawn on insert, under the subject's lock (DESIGN §7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event

_INSERT = """
insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
values (:event_type, :correlation_id, :tenant_id, :subject, :operation_key, :request_id, cast(:payload as jsonb))
returning event_id
"""
_INSERT_ALL = """
insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
select e.type, e.correlation_id, e.tenant_id, e.subject, e.operation_key, e.request_id, e.payload
from rows from (jsonb_to_recordset(cast(:events as jsonb)) as (
    type text, correlation_id uuid, tenant_id uuid, subject text, operation_key text, request_id text, payload jsonb
)) with ordinality as e order by e.ordinality
"""


async def append_events(tx: Transaction, events: Sequence[Event]) -> None:
    """Append events in this order, in one statement. None of them is the event of the operation."""
    if events:
        await tx.execute(_INSERT_ALL, {"events": json.dumps([asdict(event) for event in events], default=str)})


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
