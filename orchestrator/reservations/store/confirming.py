"""SQL that confirms holds: states, operations and events commit in one call (P2, P5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from orchestrator.database.transactions import Transaction
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.store.operations import Operation
from orchestrator.problems import InvalidState, OperationInProgress
from orchestrator.reservations.outcomes import Confirmed, ConfirmOutcome, Missing, Overdue
from orchestrator.reservations.refusals import HolderMismatch

# A `noop` changes no reservation, so its position in the log is an event `operation.committed` (as in `conclude`).
_ALONE = """
with done as materialized (
    select confirm_once(:tenant_id, :key, decode(:fingerprint, 'hex'), :retention_seconds, :id, :holder_id,
                        cast(:request_id as text), false) as outcome
)
select outcome, case when outcome ->> 'outcome' = 'noop' then
    tell_committed(cast(:tenant_id as uuid), cast(:key as text), 200, 'noop', cast(:request_id as text)) end
from done
"""
_TOGETHER = """
with briefly as materialized (
    select shorten_lock_timeout() as waits
), done as materialized (
    select confirm_together(cast(:items as jsonb)) as outcomes from briefly
)
select outcomes, case when outcomes @> '[{"outcome": "noop"}]' then (
    select count(tell_committed((item ->> 'tenant_id')::uuid, item ->> 'key', 200, 'noop', item ->> 'request_id'))
    from jsonb_array_elements(outcomes) with ordinality o(outcome, n)
    join jsonb_array_elements(cast(:items as jsonb)) with ordinality i(item, n) using (n)
    where outcome ->> 'outcome' = 'noop'
) end from done
"""


@dataclass(frozen=True, slots=True)
class Confirm:
    """A tenant's request to confirm a hold."""

    operation: Operation
    tenant_id: UUID
    reservation_id: UUID
    holder_id: str

    def item(self) -> dict[str, Any]:
        """The parameters of `confirm_once`."""
        return {
            "tenant_id": str(self.tenant_id), "key": self.operation.key, "fingerprint": self.operation.fingerprint.hex(),
            "retention_seconds": self.operation.retention_seconds, "id": str(self.reservation_id),
            "holder_id": self.holder_id, "request_id": self.operation.request_id,
        }  # fmt: skip


async def confirm_once(tx: Transaction, confirm: Confirm) -> ConfirmOutcome:
    """Confirm one hold, judged by the clock after the reservation's lock, which is the only lock that it takes."""
    return _decode((await tx.execute(_ALONE, confirm.item())).scalar_one())


async def confirm_together(tx: Transaction, confirms: Sequence[Confirm]) -> list[ConfirmOutcome]:
    """Confirm a batch; return one outcome per confirm, in input order. A locked reservation is `TryAgain`."""
    items = orjson.dumps([confirm.item() for confirm in confirms]).decode()
    outcomes = (await tx.execute(_TOGETHER, {"items": items})).scalar_one()
    return [_decode(outcome) for outcome in outcomes]


def _decode(outcome: Mapping[str, Any]) -> ConfirmOutcome:
    """One outcome of `confirm_once` or `confirm_together`."""
    match outcome["outcome"]:
        case "ok" | "noop":
            return Confirmed(outcome["body"])
        case "existing":
            return StoredResponse.decode(outcome)
        case "overdue":
            return Overdue()
        case "missing":
            return Missing()
        case "again":
            return TryAgain()
        case "holder":
            return HolderMismatch.of_reservation()
        case "state":
            return InvalidState(
                f"the reservation is {outcome['state']}; only a hold can be confirmed", state=outcome["state"]
            )
        case "in_progress":
            return OperationInProgress("the first request with this key ended without effect a moment ago; retry")
        case word:
            raise ValueError(f"{word} is not an outcome of a confirm")
