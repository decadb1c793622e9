"""SQL that confirms holds, and that expires a hold whose confirm comes late; each is one call (P2, P5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import orjson

from berth.process.json_objects import JsonMapping, JsonObject
from orchestrator.database.calls import FunctionCall
from orchestrator.database.reserve import FindClaimant, platform
from orchestrator.database.row_security import tenants_setting
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.store.operations import Operation
from orchestrator.problems import InvalidState, OperationInProgress
from orchestrator.reservations.outcomes import (
    Confirmed,
    ConfirmOutcome,
    EndedInstead,
    LateConfirmOutcome,
    Missing,
    Overdue,
)
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.decoding import decode_common
from orchestrator.tenants.principals import Actor, ActorKind

# Each call names the tenants of its items for the policies (migrations/policies.sql), before the function runs.
_CONFIRM = """
select confirm_reservations(cast(%(items)s as jsonb), %(actor_kind)s, %(actor_id)s)
from set_config('berth.tenants', %(tenants)s, true)
"""
_REFUSE_LATE = """
select refuse_late_confirm(cast(%(item)s as jsonb), cast(%(refusals)s as jsonb))
from set_config('berth.caller', %(caller)s, true) as caller cross join set_config('berth.tenants', %(tenants)s, true) as tenants
"""


@dataclass(frozen=True, slots=True)
class Confirm:
    """A request to confirm a hold of the tenant: by its holder, or by an operator in the holder's place.

    `claimant`: the principal for which it may take the reserve of connections.
    """

    operation: Operation
    tenant_id: UUID
    reservation_id: UUID
    holder_id: str
    operator: Actor | None = None
    claimant: FindClaimant = field(default=platform, compare=False)

    @property
    def actor_kind(self) -> ActorKind:
        """The kind of the actor, for events."""
        return ActorKind.TENANT if self.operator is None else self.operator.kind

    @property
    def caller_tenant_id(self) -> UUID | None:
        """The tenant whose refusal it is; None for an operator's."""
        return self.tenant_id if self.operator is None else None

    def item(self) -> JsonObject:
        """An item of `confirm_reservations`."""
        return {
            "scope": str(self.operation.scope), "key": self.operation.key,
            "fingerprint": self.operation.fingerprint.hex(), "retire_seconds": self.operation.retention_seconds,
            "tenant_id": str(self.tenant_id), "id": str(self.reservation_id), "holder_id": self.holder_id,
            "request_id": self.operation.request_id, "caller": self.operation.caller,
        }  # fmt: skip


async def confirm_all(call: FunctionCall, confirms: Sequence[Confirm]) -> list[ConfirmOutcome]:
    """Confirm a list of holders', or of one operator's; return one outcome per confirm, in input order.

    Evaluated by the clock after the reservations' locks. In a list, an item whose reservation is locked is `TryAgain`; one
    alone waits. Raises `OperationInProgress` if another transaction holds a key, soon for a list.
    """
    operator = confirms[0].operator
    assert all(confirm.operator == operator for confirm in confirms), "one actor confirms the whole list"
    values = {
        "items": orjson.dumps([confirm.item() for confirm in confirms]).decode(),
        "actor_kind": confirms[0].actor_kind.value,
        "actor_id": None if operator is None else operator.id,
        "tenants": _tenants_of(confirms),
    }
    return [_decode(outcome) for outcome in await call.value(_CONFIRM, values)]


def _tenants_of(confirms: Sequence[Confirm]) -> str:
    """The tenants whose reservations are confirmed, and the scopes of the keys, which are an operator's for its confirm."""
    return tenants_setting({id_ for confirm in confirms for id_ in (confirm.tenant_id, confirm.operation.scope)})


async def refuse_late_confirm(call: FunctionCall, confirm: Confirm, retention_seconds: float) -> LateConfirmOutcome:
    """Expire the hold and store the refusal of its confirm. Any outcome but `EndedInstead` leaves nothing behind.

    The hold's claims end, so its nodes are locked before the reservation, for this call.
    """
    item = confirm.item() | {
        "actor_kind": confirm.actor_kind.value,
        "caller_tenant": confirm.caller_tenant_id,
        "retention_seconds": retention_seconds,
    }
    refusals = {state.value: _too_late(state).document() for state in ReservationState}
    values = {"item": orjson.dumps(item).decode(), "refusals": orjson.dumps(refusals).decode()}
    values |= {"caller": confirm.operation.caller_json, "tenants": _tenants_of([confirm])}
    outcome = await call.value(_REFUSE_LATE, values)
    match outcome["outcome"]:
        case "refused":
            return EndedInstead(outcome["status"], outcome["body"])
        case word:
            decoded = _decode(outcome)
            assert isinstance(decoded, StoredResponse | Missing | TryAgain | OperationInProgress), word
            return decoded


def _too_late(state: ReservationState) -> InvalidState:
    return InvalidState(f"the hold's deadline has passed; the reservation is {state}", state=state)


def _decode(outcome: JsonMapping) -> ConfirmOutcome:
    """One outcome of `confirm_reservations`."""
    match outcome["outcome"]:
        case "ok" | "noop":
            return Confirmed(outcome["body"])
        case "overdue":
            return Overdue()
        case _:
            return decode_common(outcome, "a hold can be confirmed")
