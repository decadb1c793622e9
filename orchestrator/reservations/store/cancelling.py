"""SQL that cancels a reservation under its operation key, in one call: its nodes are locked for that call alone."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from berth.process.json_objects import JsonMapping
from orchestrator.database.calls import FunctionCall
from orchestrator.operations.store.operations import Operation
from orchestrator.reservations.outcomes import Cancelled, CancelOutcome
from orchestrator.reservations.store.decoding import decode_common
from orchestrator.tenants.principals import Actor, ActorKind

_CANCEL = """
select cancel_once(%(scope)s, %(key)s, %(fingerprint)s, %(retire_seconds)s, %(tenant_id)s, %(id)s, %(holder_id)s, %(actor_kind)s,
                   %(actor_id)s, %(request_id)s, %(retention_seconds)s)
from set_config('berth.caller', %(caller)s, true)
"""


@dataclass(frozen=True, slots=True)
class Cancel:
    """A request of the holder or of an operator to cancel a reservation of the tenant."""

    operation: Operation
    actor: Actor
    tenant_id: UUID
    reservation_id: UUID
    holder_id: str


async def cancel_once(call: FunctionCall, cancel: Cancel, retention_seconds: float) -> CancelOutcome:
    """Cancel one reservation, evaluated by the clock after its locks. Any outcome but `Cancelled` leaves nothing behind."""
    operation, actor = cancel.operation, cancel.actor
    values = {
        "scope": operation.scope,
        "key": operation.key,
        "fingerprint": operation.fingerprint,
        "retire_seconds": operation.retention_seconds,
        "tenant_id": cancel.tenant_id,
        "id": cancel.reservation_id,
        "holder_id": cancel.holder_id,
        "actor_kind": actor.kind.value,
        "actor_id": actor.id if actor.kind is ActorKind.ADMIN else None,
        "request_id": operation.request_id,
        "retention_seconds": retention_seconds,
        "caller": operation.caller_json,
    }
    return _decode(await call.value(_CANCEL, values))


def _decode(outcome: JsonMapping) -> CancelOutcome:
    match outcome["outcome"]:
        case "ok" | "noop":
            return Cancelled(outcome["body"])
        case _:
            return decode_common(outcome, "a hold or a confirmed window can be cancelled")
