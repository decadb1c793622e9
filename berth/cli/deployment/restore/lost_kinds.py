"""What an event of the lost interval was, and what follows from its loss. Pure.

Replayed is only what certainly agrees with what was acknowledged: an end of something that exists in the restored database
and has not ended, a revocation, and a certificate or password that is in use. All else is reported: doing it again could place or
bill what its tenant did not order twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonMapping

OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of lost effect. `next_step`: what to do about one; None: nothing, it follows from others or is derived again."""

    name: str
    next_step: str | None


@dataclass(frozen=True, slots=True)
class End:
    """An end or a revocation that is replayed if its object exists in the restored database and has not ended."""

    kind: str
    subject_id: UUID


CONSEQUENCE: Final = Kind("consequence", None)
UNKNOWN: Final = Kind("unknown", "find out what it changed by its audit record or its payload, and do it again")
REPLAYED: Final = "replayed: `berth restore run`, and the worker once the restore is closed, do it again"
ENROL_AGAIN: Final = "enrol the node again (`berth node token`): its certificates of the lost interval are refused"
ENROL_AGENT_AGAIN: Final = (
    "enrol the agent again (`berth site enrol-agent`): its certificates of the lost interval are refused"
)
NEXT_STEPS: Final[Mapping[str, str]] = {
    "certificates": f"`berth restore run` revokes the certificates that the database has of the node. {ENROL_AGAIN}",
    "adopt": "`berth restore run` adopts the certificate, unless those of the node were revoked in the lost interval",
    "site_agent": f"`berth restore run` revokes the agent again. To use it again, {ENROL_AGENT_AGAIN}",
    "adopt_agent": "`berth restore run` adopts the certificate, unless the agent was revoked in the lost interval",
    "bmc_password": "`berth restore run` adopts the password, which stays sealed",
}
"""By kind of a replay, where more is to be said than `REPLAYED`."""
_AGAIN: Final = "the tenant does it again, with the same or another idempotency key"
_OPERATOR_AGAIN: Final = "an operator does it again"
_BY_EVENT: Final[Mapping[str, Kind]] = {
    "provisioning.requested": Kind(
        "allocation_created",
        "tell the tenant: the allocation does not exist any more. A guest that was started is an orphan: destroy it"
        " (`berth node destroy-orphan`) or adopt it; the tenant creates another",
    ),
    "provisioning.releasing.requested": Kind(
        "allocation_released", "the allocation does not exist: nothing is to be done"
    ),
    "allocation.updated": Kind("allocation_updated", _AGAIN),
    "allocation.verb_requested": Kind(
        "allocation_verb", "nothing, if the guest is as its tenant wants it; otherwise the tenant does it again"
    ),
    "reservation.held": Kind(
        "reservation_held", "tell the tenant: the reservation does not exist any more; it holds again"
    ),
    "reservation.confirmed": Kind(
        "reservation_confirmed", "tell the tenant to confirm again before the hold's deadline, or to hold again"
    ),
    "reservation.cancelled": Kind("reservation_cancelled", "the reservation does not exist: nothing is to be done"),
    "transaction": Kind("keys_and_values", "tell the tenant: the keys have their earlier values; it commits again"),
    "node.registered": Kind(
        "node_registered", "register and enrol the node again (`berth node add`, `berth node token`)"
    ),
    "node.enrolled": Kind("node_enrolled", ENROL_AGAIN),
    "node.certificate_issued": Kind("certificate_issued", ENROL_AGAIN),
    "node.certificates_revoked": Kind("certificates_revoked", "the node does not exist: nothing is to be done"),
    "node.identity_conflict": Kind("certificates_revoked", "the node does not exist: nothing is to be done"),
    "site.agent_enrolled": Kind("site_agent_enrolled", ENROL_AGENT_AGAIN),
    "site.certificate_issued": Kind("site_certificate_issued", ENROL_AGENT_AGAIN),
    "site.agent_revoked": Kind("site_agent_revoked", "the agent does not exist: nothing is to be done"),
    "site.identity_conflict": Kind("site_agent_revoked", "the agent does not exist: nothing is to be done"),
    "node.bmc_password_stored": Kind(
        "bmc_password_stored",
        "the database does not have this BMC at this site, or has a later generation of another registration: if its tasks fail,"
        " give it to Berth with a password (`berth node bmc set`)",
    ),
    "node.retired": Kind(
        "node_retired", "its certificates are revoked again; retire the node again (`berth node retire`)"
    ),
    "tenant.deleted": Kind("tenant_deleted", "delete the tenant again (`berth tenant delete`)"),
    "resource.created": Kind("resource_created", _OPERATOR_AGAIN),
}
_OPERATORS: Final = (
    "node.cordoned", "node.uncordoned", "node.draining", "node.slot_quarantined", "node.slot_returned", "node.updated",
    "node.topology_approved", "resource.out_of_service", "resource.in_service", "maintenance.scheduled",
    "maintenance.cancelled", "maintenance.ended", "approval.approved",
)  # fmt: skip
_BY_ACTION: Final[Mapping[str, Kind]] = {
    # Of an allocation that was being released already: its first release has an event.
    "allocation.release": CONSEQUENCE,
    "reservation.cancel": CONSEQUENCE,
    "api_key.create": Kind("api_key_created", "tell the owner: the key is refused; create another"),
    "api_key.rotate": Kind(
        "api_key_rotated", "tell the owner: the new key is refused and the old one is valid; rotate it again"
    ),
    "node.bmc_rotate": Kind(
        "bmc_rotation_ordered", "`berth restore run` adopts a password that was stored; if none was, rotate it again"
    ),
    "api_key.revoke": Kind("api_key_revoked", "the key does not exist: nothing is to be done"),
    "balance.top_up": Kind(
        "top_up",
        "enter the payment again (`berth balance top-up`), by your records of payments: the amount is in the audit stream",
    ),
    "balance.withdrawal": Kind(
        "withdrawal", "enter it again, by your records of payments: the amount is in the audit stream"
    ),
}
_NOTHING: Final = frozenset({"operation.refused", "key.break_glass_used", "task.finished", "webhook.disabled"})
_ENDS: Final[Mapping[str, str]] = {
    "provisioning.releasing.requested": "release",
    "reservation.cancelled": "cancel",
    "node.certificates_revoked": "certificates",
    "node.identity_conflict": "certificates",
    "node.retired": "certificates",
    # Its earlier certificates were revoked by it.
    "node.enrolled": "certificates",
    "site.agent_revoked": "site_agent",
    "site.identity_conflict": "site_agent",
    "site.agent_enrolled": "site_agent",
}
_REVOKED: Final[Mapping[str, str]] = {
    "api_key.revoke": "api_key",
    "member.remove": "member",
    "invitation.revoke": "invitation",
}
"""By the action of an operation, what it ended."""
_ADOPTED: Final[Mapping[str, str]] = {
    "node.certificate_issued": "adopt",
    "site.certificate_issued": "adopt_agent",
    "node.bmc_password_stored": "bmc_password",
}
ADOPTED: Final = frozenset(_ADOPTED.values())
"""Kinds of replays that need what the event says of a certificate or a password."""


def kind_of(event_type: str, data: JsonMapping) -> Kind:
    """The kind of an event, by its type without prefix and its data. A stub, and a type of another version, are `UNKNOWN`."""
    if data.get("stub") is True:
        return UNKNOWN
    if event_type == "operation.committed":
        if data.get("code") == "noop":
            return CONSEQUENCE
        action = data.get("action")
        if action is None:
            return UNKNOWN
        return _BY_ACTION.get(action) or Kind(action, _REPEATED)
    known = _BY_EVENT.get(event_type)
    if known is not None:
        return known
    if event_type in _OPERATORS:
        return Kind(event_type, _OPERATOR_AGAIN)
    return CONSEQUENCE if event_type in _NOTHING or _is_known(event_type) else UNKNOWN


_REPEATED: Final = "the caller does it again; the audit stream has its details"


def _is_known(event_type: str) -> bool:
    # The client package loads httpx: only the command that exports needs it.
    from berth.client.feed.event_types import EVENT_TYPES

    return event_type in EVENT_TYPES or event_type.startswith("log.")


def end_of(event_type: str, subject: str, data: JsonMapping, event_id: str = "") -> End | None:
    """What the event ended or revoked, if that may be replayed; of what is adopted, the event itself."""
    if event_type == "operation.committed" and data.get("action") in _REVOKED:
        return _end(_REVOKED[data["action"]], str(data.get("object", "")))
    if event_type in _ADOPTED:
        return _end(_ADOPTED[event_type], event_id)
    kind = _ENDS.get(event_type)
    return None if kind is None else _end(kind, subject)


def _end(kind: str, subject: str) -> End | None:
    try:
        return End(kind, UUID(subject.rpartition("/")[2]))
    except ValueError:
        return None
