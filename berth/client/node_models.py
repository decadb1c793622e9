"""Nodes as operators see them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from berth.client.models import Answer


class Slot(Answer):
    """One GPU unit of a node: free, held, allocated, cleanup_blocked (`code` says why) or out_of_service (`reason`)."""

    index: int
    unit: int
    numa_half: int
    state: str
    reason: str | None = None
    holder: UUID | None = None
    code: str | None = None


class RemainingClaim(Answer):
    """A claim on a draining node, of an allocation or a reservation."""

    owner: str
    tenant_id: UUID
    state: str
    starts_at: datetime
    ends_at: datetime | None = None


class NodeDrain(Answer):
    """The drain of a node that is draining; `remaining`: what is still on it, at most 100 of `remaining_count`."""

    begun_at: datetime
    begun_by: str
    reason: str | None = None
    deadline: datetime | None = None
    at_deadline: str
    overdue_at: datetime | None = None
    drained_at: datetime | None = None
    waits_for: str | None = None
    waits_since: datetime | None = None
    waits_until: datetime | None = None
    remaining: list[RemainingClaim]
    remaining_count: int = 0


class Node(Answer):
    """A machine of the fleet. Lists leave `slots` and `drain` out."""

    id: UUID
    name: str
    region: str
    gpu_model: str
    shape: str
    slot_count: int
    half_slots: int
    state: str
    online: bool
    free_slots: int
    cleanup_blocked_slots: int = 0
    slots: list[Slot] | None = None
    epoch: int
    hardware_id: str | None = None
    address: str | None = None
    faults: dict[str, str] = Field(default_factory=dict)
    enrolled_at: datetime | None = None
    last_seen_at: datetime | None = None
    agent_version: str | None = None
    driver: str | None = None
    key_set_serial: int | None = None
    key_set_refusal: str | None = None
    identity_conflict_at: datetime | None = None
    attestation: str | None = None
    attestation_from: str | None = None
    ek_sha256: str | None = None
    attested_at: datetime | None = None
    drained: bool | None = None
    drain: NodeDrain | None = None
    row_version: int


class EnrolmentToken(Answer):
    """A one-time token with which a node's agent enrols; shown once."""

    token: str
    expires_at: datetime


class Quarantine(Answer):
    """A time during which a slot was out of service, by what `source` says; `returned_at` None: it still is."""

    id: UUID
    node_id: UUID
    slot_index: int
    source: str = "operator"
    reason: str
    evidence: str | None = None
    quarantined_at: datetime
    quarantined_by: str
    returned_at: datetime | None = None
    returned_by: str | None = None
    note: str | None = None
    fault_report_id: UUID | None = None
    last_fault_at: datetime | None = None
    burn_in_id: UUID | None = None
