"""What operators of the fleet did and saw: the kinds of their writes, and the evidence beside the attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel

from berth.client.hardware.images import Image
from berth.client.hardware.pools import Pool
from berth.client.maintenance import MaintenanceWindow
from berth.client.models import Region, Sku
from berth.client.node_models import Node, Quarantine

FleetKind = Literal[
    "put_sku", "put_image", "delete_image", "put_region", "set_pool", "create_node", "cordon", "uncordon", "drain", "retire",
    "quarantine", "return_slot", "revoke", "commit_window", "cancel_window", "end_window",
]  # fmt: skip
"""The kinds of operators' writes. The `content` of their attempts is a JSON object with the `subject`, as audit names it."""


class Deleted(BaseModel):
    """The response to a DELETE, whose body is empty."""


FLEET_EFFECTS: dict[str, frozenset[str]] = {
    "put_sku": frozenset(),
    "put_image": frozenset(),
    "delete_image": frozenset(),
    "put_region": frozenset(),
    "set_pool": frozenset(),
    "create_node": frozenset({"node.registered"}),
    "cordon": frozenset({"node.cordoned"}),
    "uncordon": frozenset({"node.uncordoned"}),
    "drain": frozenset({"node.draining"}),
    "retire": frozenset({"node.retired"}),
    "quarantine": frozenset({"node.slot_quarantined"}),
    "return_slot": frozenset({"node.slot_returned"}),
    "revoke": frozenset({"node.certificates_revoked"}),
    "commit_window": frozenset({"maintenance.scheduled"}),
    "cancel_window": frozenset({"maintenance.cancelled"}),
    "end_window": frozenset({"maintenance.ended"}),
}
"""The event types that each kind may emit; the catalogue emits none, its evidence is the audit."""
FLEET_ANSWERS: dict[str, type[BaseModel]] = {
    "put_sku": Sku, "put_image": Image, "delete_image": Deleted, "put_region": Region, "set_pool": Pool,
    "create_node": Node, "cordon": Node, "uncordon": Node, "drain": Node, "retire": Node, "quarantine": Quarantine,
    "return_slot": Quarantine, "revoke": Node, "commit_window": MaintenanceWindow, "cancel_window": MaintenanceWindow,
    "end_window": MaintenanceWindow,
}  # fmt: skip
"""The response to each kind of write."""
CATALOGUE_KINDS = frozenset({"put_sku", "put_image", "delete_image", "put_region", "set_pool"})
STATE_KINDS = frozenset({"create_node", "cordon", "uncordon", "drain", "retire"})
"""Kinds of writes that give a node its state."""


@dataclass(frozen=True)
class CertificateUse:
    """One request with a node's certificate, and whether the server accepted the certificate."""

    node_id: UUID
    serial: str
    path: str
    asked: float
    told: float
    is_accepted: bool


@dataclass(frozen=True)
class Audited:
    """An entry of the audit; `code` is `ok` where the action was done."""

    key: str | None
    action: str
    subject: str
    code: str
    detail: dict[str, Any]


@dataclass
class FleetHistory:
    """The evidence beside attempts and events. What is read at the end is empty where it was not read."""

    first_units: dict[UUID, int] = field(default_factory=dict)
    """The unit of slot 0 of each node."""
    uses: list[CertificateUse] = field(default_factory=list)
    audited: list[Audited] = field(default_factory=list)
    documents: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Subjects of the catalogue as they were read at the end; None: there was none."""
    states: dict[UUID, str] = field(default_factory=dict)
    """States of the nodes as they were read at the end."""
