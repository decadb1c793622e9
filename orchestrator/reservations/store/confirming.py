"""Confirms holds in one server-side call (migrations): states, operations and events together (P2, P5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from orchestrator.database.transactions import WAITS_BRIEFLY, Transaction
from orchestrator.operations.store.operations import Operation

# What finds nothing left to do has its place in the log by an event of its own, as everywhere (`conclude`).
_ALONE = """
with done as materialized (
    select confirm_once(:tenant_id, :key, decode(:fingerprint, 'hex'), :retention_seconds, :id, :holder_id,
                        cast(:request_id as text), false) as outcome
)
select outcome, case when outcome ->> 'outcome' = 'noop' then
    tell_committed(cast(:tenant_id as uuid), cast(:key as text), 200, 'noop', cast(:request_id as text)) end
from done
"""
_TOGETHER = f"""
with briefly as materialized (
    select {WAITS_BRIEFLY} as waits
), done as materialized (
    select confirm_together(cast(:items as jsonb)) as outcomes from briefly
)
select outcomes, case when outcomes @> '[{{"outcome": "noop"}}]' then (
    select count(tell_committed((item ->> 'tenant_id')::uuid, item ->> 'key', 200, 'noop', item ->> 'request_id'))
    from jsonb_array_elements(outcomes) with ordinality o(outcome, n)
    join jsonb_array_elements(cast(:items as jsonb)) with ordinality i(item, n) using (n)
    where outcome ->> 'outcome' = 'noop'
) end from done
"""


@dataclass(frozen=True, slots=True)
class Confirm:
    """One confirm, as the reservation's tenant asked for it."""

    operation: Operation
    tenant_id: UUID
    reservation_id: UUID
    holder_id: str

    def item(self) -> dict[str, Any]:
        """What the server-side calls take."""
        return {
            "tenant_id": str(self.tenant_id), "key": self.operation.key, "fingerprint": self.operation.fingerprint.hex(),
            "retention_seconds": self.operation.retention_seconds, "id": str(self.reservation_id),
            "holder_id": self.holder_id, "request_id": self.operation.request_id,
        }  # fmt: skip


async def confirm_once(tx: Transaction, confirm: Confirm) -> dict[str, Any]:
    """What became of it, in the words of `confirm_once`. Everything but `ok` and `noop` leaves nothing behind.

    Judged by the clock after the reservation's lock, which is the only one that it takes.
    """
    outcome: dict[str, Any] = (await tx.execute(_ALONE, confirm.item())).scalar_one()
    return outcome


async def confirm_together(tx: Transaction, confirms: Sequence[Confirm]) -> list[dict[str, Any]]:
    """The same for a list, in its order; `again` for one that would have to wait for somebody."""
    items = orjson.dumps([confirm.item() for confirm in confirms]).decode()
    outcomes: list[dict[str, Any]] = (await tx.execute(_TOGETHER, {"items": items})).scalar_one()
    return outcomes
