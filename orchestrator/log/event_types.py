"""What every type of event carries: the one table from which the AsyncAPI document is made, and against which tests hold
every event that is written (docs/events.md says the same in prose).

Schemas are JSON Schema. Consumers pass over what they do not know, so these tell what is there at least; the tests also
refuse what is not told here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.log.events import EventType

Schema = Mapping[str, Any]


class Audience(StrEnum):
    """Who may read an event, besides operators, who read all."""

    TENANT = "tenant"
    OPERATOR = "operator"


ID: Schema = {"type": "string", "format": "uuid"}
TIME: Schema = {"type": "string", "format": "date-time"}
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
AMOUNT: Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
FENCE: Schema = {
    **WHOLE,
    "description": "of two events about one claim the one with the higher fence is the newer",
}
FLAG: Schema = {"type": "boolean"}
TEXTS: Schema = {"type": "array", "items": TEXT}
IDS: Schema = {"type": "array", "items": ID}
OBJECT: Schema = {"type": "object"}
SLOTS: Schema = {"type": "array", "items": WHOLE}
UNITS: Schema = {
    "type": "array",
    "items": {"type": "array", "items": WHOLE, "minItems": 2, "maxItems": 2},
    "description": "ranges of units, [first, last_exclusive] each",
}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    return {**schema, "type": [schema["type"], "null"]}


PLACE: Schema = {
    "type": "object",
    "properties": {"node_id": nullable(ID), "resource_id": nullable(TEXT), "units": UNITS, "fence": FENCE},
    "required": ["units", "fence"],
}


@dataclass(frozen=True, slots=True)
class EventKind:
    """One type: who may read it, what it says, and what its data has always and sometimes."""

    audience: Audience
    says: str
    always: Mapping[str, Schema]
    sometimes: Mapping[str, Schema] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the data."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in {**self.always, **self.sometimes}.items()},
            "required": list(self.always),
        }


_PLACED: Mapping[str, Schema] = {
    "allocation_id": ID, "sku": TEXT, "shape": TEXT, "gpus": WHOLE, "region": TEXT, "node_id": ID, "units": UNITS,
    "fence": FENCE,
}  # fmt: skip
_FROM_RESERVATION: Mapping[str, Schema] = {
    "reservation_id": nullable(ID), "ends_at": nullable(TIME), "turned_over": FLAG,
}  # fmt: skip
_TROUBLE: Mapping[str, Schema] = {"code": TEXT, "detail": nullable(TEXT), "next_step": nullable(TEXT)}
_OF_RESERVATION: Mapping[str, Schema] = {"reservation_id": ID, "holder_id": TEXT, "judged_at": TIME}
_BY: Mapping[str, Schema] = {"actor_kind": TEXT}
_BY_OPERATOR: Mapping[str, Schema] = {"actor_id": TEXT}
_NODE: Mapping[str, Schema] = {"node_id": ID, "name": TEXT}
_NODE_STATE: Mapping[str, Schema] = {"node_id": ID, "from": TEXT, "to": TEXT}
_ORPHAN: Mapping[str, Schema] = {"orphan_id": ID, "node_id": ID, "name": TEXT, "allocation_id": nullable(TEXT)}

_BALANCE: Mapping[str, Schema] = {
    "settled_micro_units": AMOUNT, "accruing_micro_units": WHOLE, "available_micro_units": AMOUNT,
    "low_threshold_micro_units": nullable(AMOUNT), "rate_micro_units_per_second": WHOLE, "runs_out_at": nullable(TIME),
    "judged_at": TIME,
}  # fmt: skip

_T, _O = Audience.TENANT, Audience.OPERATOR

EVENT_KINDS: Mapping[EventType, EventKind] = {
    EventType.PROVISIONING_REQUESTED: EventKind(
        _T, "an allocation has its units and is to be provisioned", _PLACED, _FROM_RESERVATION
    ),
    EventType.PROVISIONING_WAITING: EventKind(
        _T, "an allocation has the right to its units; what ran there before may still be on them", _PLACED,
        _FROM_RESERVATION,
    ),
    EventType.PROVISIONING_ACTIVE: EventKind(
        _T, "an allocation can be used; metering begins at active_at",
        {
            "allocation_id": ID, "sku": TEXT, "shape": TEXT, "gpus": WHOLE, "region": TEXT, "node_id": ID,
            "price_version": WHOLE, "active_at": TIME, "fence": FENCE,
        },
    ),
    EventType.PROVISIONING_FAILED: EventKind(
        _T, "an allocation has failed",
        {"allocation_id": ID, **_TROUBLE, "node_id": ID, "failed_at": TIME, "fence": FENCE},
    ),
    EventType.RELEASING_REQUESTED: EventKind(
        _T, "a release was ordered; metering ends at releasing_at",
        {"allocation_id": ID, "reason": nullable(TEXT), **_BY, "releasing_at": nullable(TIME), "fence": FENCE},
    ),
    EventType.RELEASING_COMPLETED: EventKind(
        _T, "an allocation is released, and its units are clean",
        {
            "allocation_id": ID, "hard_stopped": FLAG, "active_at": nullable(TIME), "releasing_at": nullable(TIME),
            "released_at": TIME, "fence": FENCE,
        },
        {"by": TEXT, "evidence": OBJECT},
    ),
    EventType.RELEASE_FAILED: EventKind(
        _T, "a release is not proven; the units stay occupied",
        {"allocation_id": ID, "attempts": WHOLE, **_TROUBLE, "release_failed_at": TIME, "fence": FENCE},
    ),
    EventType.RESERVATION_HELD: EventKind(
        _T, "a hold was made",
        {
            **_OF_RESERVATION, "claims": {"type": "array", "items": PLACE}, "resources": TEXTS, "sku": nullable(TEXT),
            "gpus": nullable(WHOLE), "region": nullable(TEXT), "count": nullable(WHOLE), "gpus_held": WHOLE,
            "starts_at": TIME, "ends_at": nullable(TIME), "hold_until": TIME,
        },
    ),
    EventType.RESERVATION_CONFIRMED: EventKind(
        _T, "a hold was confirmed", {**_OF_RESERVATION, **_BY}, _BY_OPERATOR
    ),
    EventType.RESERVATION_CANCELLED: EventKind(
        _T, "a reservation was cancelled", {**_OF_RESERVATION, **_BY}, _BY_OPERATOR
    ),
    EventType.RESERVATION_EXPIRED: EventKind(
        _T, "a hold was not confirmed in time", {**_OF_RESERVATION, **_BY, "deadline": TIME}, _BY_OPERATOR
    ),
    EventType.RESERVATION_RELEASED: EventKind(
        _T, "a confirmed window is over, and nobody used it", {**_OF_RESERVATION, **_BY}
    ),
    EventType.RESERVATION_CONSUMED: EventKind(
        _T, "the last claim of a reservation has become an allocation's",
        {**_OF_RESERVATION, "allocation_ids": IDS}, _BY,
    ),
    EventType.RESERVATION_MOVED: EventKind(
        _T, "a claim of a reservation has another place",
        {**_OF_RESERVATION, "from": PLACE, "to": PLACE, "reason": TEXT}, _BY,
    ),
    EventType.RESERVATION_WAITING: EventKind(
        _T, "it was to start by itself, and its node is silent",
        {**_OF_RESERVATION, "reason": TEXT, "waits_until": TIME}, _BY,
    ),
    EventType.RESERVATION_FAILED: EventKind(
        _T, "it could not start by itself", {**_OF_RESERVATION, "code": TEXT, "detail": nullable(TEXT)}, _BY
    ),
    EventType.RESERVATION_ENDING: EventKind(
        _T, "an allocation will end by itself soon",
        {"allocation_id": ID, "reservation_id": nullable(ID), "ends_at": TIME, "judged_at": TIME},
    ),
    EventType.RESOURCE_CREATED: EventKind(
        _O, "a resource was registered", {"resource_id": TEXT, "units": UNITS, "state": TEXT}
    ),
    EventType.RESOURCE_OUT_OF_SERVICE: EventKind(
        _O, "a resource was taken out of service", {"resource_id": TEXT, "from": TEXT, "to": TEXT, "reason": TEXT}
    ),
    EventType.RESOURCE_IN_SERVICE: EventKind(
        _O, "a resource is back in service", {"resource_id": TEXT, "from": TEXT, "to": TEXT}
    ),
    EventType.TASK_FINISHED: EventKind(
        _O, "a node's task has ended",
        {
            "task_id": ID, "allocation_id": nullable(ID), "type": TEXT, "outcome": TEXT, "fence": nullable(FENCE),
            "notify": nullable(TEXT), "queued_at": TIME,
        },
    ),
    EventType.NODE_REGISTERED: EventKind(
        _O, "a node was registered",
        {**_NODE, "region": TEXT, "gpu_model": TEXT, "shape": TEXT, "slot_count": WHOLE},
    ),
    EventType.NODE_ENROLLED: EventKind(
        _O, "a node has its certificate", {**_NODE, "epoch": WHOLE, "hardware_id": TEXT, "state": TEXT}
    ),
    EventType.NODE_ONLINE: EventKind(_O, "a node is heard again", _NODE),
    EventType.NODE_OFFLINE: EventKind(_O, "a node is silent", {**_NODE, "last_seen_at": nullable(TIME)}),
    EventType.NODE_CORDONED: EventKind(_O, "nothing new is placed on a node", _NODE_STATE),
    EventType.NODE_UNCORDONED: EventKind(_O, "a node is placed on again", _NODE_STATE),
    EventType.NODE_DRAINING: EventKind(_O, "a node is being emptied", _NODE_STATE),
    EventType.NODE_RETIRED: EventKind(_O, "a node is gone for good", {**_NODE_STATE, "reason": TEXT}),
    EventType.NODE_CERTIFICATES_REVOKED: EventKind(
        _O, "a node's certificates are not believed any more", {"node_id": ID, "reason": TEXT, "certificates": WHOLE}
    ),
    EventType.NODE_CLEANUP_BLOCKED: EventKind(
        _O, "cleanup after a failure is exhausted; the units stay occupied",
        {"node_id": ID, "allocation_id": ID, **_TROUBLE, "fence": FENCE},
    ),
    EventType.NODE_ORPHAN_FOUND: EventKind(
        _O, "a node runs what nobody here asked for",
        {**_ORPHAN, "slots": SLOTS, "fence": nullable(FENCE), "allocation_state": nullable(TEXT)},
    ),
    EventType.NODE_ORPHAN_ADOPTED: EventKind(
        _O, "an operator vouched for an orphan", {**_ORPHAN, "adopted_for": nullable(ID), "reason": TEXT}
    ),
    EventType.NODE_ORPHAN_DESTROYED: EventKind(
        _O, "an orphan is gone", {**_ORPHAN, "slots": SLOTS, "decided_by": nullable(TEXT)}
    ),
    EventType.BALANCE_LOW: EventKind(_T, "a prepaid balance has sunk below its threshold", _BALANCE),
    EventType.BALANCE_DEPLETED: EventKind(
        _T, "a prepaid balance is used up; what the tenant runs is released by billing", _BALANCE
    ),
    EventType.WEBHOOK_DISABLED: EventKind(
        _T, "a webhook is sent nothing more", {"webhook_id": ID, "reason": TEXT}
    ),
    EventType.OPERATION_COMMITTED: EventKind(
        _T, "a write is remembered that no other event names", {"code": TEXT, "status": WHOLE, "judged_at": TIME}
    ),
    EventType.TRANSACTION: EventKind(
        _T, "keys and values of a namespace were changed by one transaction",
        {"operations": {"type": "array", "items": OBJECT}, "judged_at": TIME}, {"principal_id": ID},
    ),
    EventType.OPERATION_REFUSED: EventKind(
        _T, "a write was refused, and is remembered so",
        {"code": TEXT, "reason": nullable(TEXT), "status": WHOLE, "judged_at": TIME},
    ),
}  # fmt: skip
"""Every type. `log.version_lost` is not among them: no command writes it, it stands for a lost version."""
