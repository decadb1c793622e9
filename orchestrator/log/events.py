"""Event types, and events before they have a position in the log (DESIGN §7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject

VERSIONS_SKIPPED: Final = "log.versions_skipped"
"""At version `last` it replaces the versions from `first` to it, which a restore has lost; `prev_version` is `first` - 1."""
OF_THE_LOG: Final = frozenset({VERSIONS_SKIPPED, "log.version_lost"})
"""Types that replace lost versions, and are written by no command."""


class EventType(StrEnum):
    """Stable names; docs/reference/events.md lists each payload."""

    PROVISIONING_REQUESTED = "provisioning.requested"
    PROVISIONING_WAITING = "provisioning.waiting"
    PROVISIONING_ACTIVE = "provisioning.active"
    PROVISIONING_FAILED = "provisioning.failed"
    RELEASING_REQUESTED = "provisioning.releasing.requested"
    RELEASING_COMPLETED = "provisioning.releasing.completed"
    RELEASE_FAILED = "provisioning.release_failed"
    ALLOCATION_UPDATED = "allocation.updated"
    ALLOCATION_MAINTENANCE = "allocation.maintenance"
    ALLOCATION_MAINTENANCE_CANCELLED = "allocation.maintenance_cancelled"
    ALLOCATION_NODE_DRAINING = "allocation.node_draining"
    ALLOCATION_NODE_DRAIN_CANCELLED = "allocation.node_drain_cancelled"
    ALLOCATION_VERB_REQUESTED = "allocation.verb_requested"
    ALLOCATION_VERB_COMPLETED = "allocation.verb_completed"
    ALLOCATION_VERB_FAILED = "allocation.verb_failed"
    ALLOCATION_DEGRADED = "allocation.degraded"
    ALLOCATION_RECOVERED = "allocation.recovered"
    ALLOCATION_LOST = "allocation.lost"
    ALLOCATION_FIRST_BOOT_ENDED = "allocation.first_boot_ended"
    ALLOCATION_FAULT_REPORTED = "allocation.fault_reported"
    ALLOCATION_REPLACED = "allocation.replaced"
    ALLOCATION_REPLACEMENT_FAILED = "allocation.replacement_failed"
    TASK_FINISHED = "task.finished"
    NODE_REGISTERED = "node.registered"
    NODE_ENROLLED = "node.enrolled"
    NODE_CERTIFICATE_ISSUED = "node.certificate_issued"
    NODE_ONLINE = "node.online"
    NODE_OFFLINE = "node.offline"
    NODE_CORDONED = "node.cordoned"
    NODE_UNCORDONED = "node.uncordoned"
    NODE_DRAINING = "node.draining"
    NODE_DRAINED = "node.drained"
    NODE_DRAIN_OVERDUE = "node.drain_overdue"
    NODE_CERTIFICATES_REVOKED = "node.certificates_revoked"
    NODE_IDENTITY_CONFLICT = "node.identity_conflict"
    NODE_CLEANUP_BLOCKED = "node.cleanup_blocked"
    SITE_AGENT_ENROLLED = "site.agent_enrolled"
    SITE_AGENT_REVOKED = "site.agent_revoked"
    SITE_CERTIFICATE_ISSUED = "site.certificate_issued"
    SITE_IDENTITY_CONFLICT = "site.identity_conflict"
    NODE_RETIRED = "node.retired"
    NODE_FAULT_REPORTED = "node.fault_reported"
    NODE_SLOT_QUARANTINED = "node.slot_quarantined"
    NODE_SLOT_RETURNED = "node.slot_returned"
    NODE_BURN_IN_ENDED = "node.burn_in_ended"
    NODE_GPU_RESET_ENDED = "node.gpu_reset_ended"
    NODE_BMC_PASSWORD_STORED = "node.bmc_password_stored"
    NODE_BMC_RESET_ENDED = "node.bmc_reset_ended"
    NODE_PORTS_MOVED = "node.ports_moved"
    NODE_ATTESTATION_ENDED = "node.attestation_ended"
    NODE_DEPLOY_RUN_ENDED = "node.deploy_run_ended"
    NODE_ORPHAN_FOUND = "node.orphan_found"
    NODE_ORPHAN_ADOPTED = "node.orphan_adopted"
    NODE_ORPHAN_DESTROYED = "node.orphan_destroyed"
    NODE_UPDATED = "node.updated"
    NODE_TOPOLOGY_APPROVED = "node.topology_approved"
    NODE_TOPOLOGY_DRIFTED = "node.topology_drifted"
    NODE_TOPOLOGY_RESTORED = "node.topology_restored"
    RESERVATION_HELD = "reservation.held"
    RESERVATION_CONFIRMED = "reservation.confirmed"
    RESERVATION_CANCELLED = "reservation.cancelled"
    RESERVATION_EXPIRED = "reservation.expired"
    RESERVATION_CONSUMED = "reservation.consumed"
    RESERVATION_RELEASED = "reservation.released"
    RESERVATION_ENDING = "reservation.ending"
    RESERVATION_MOVED = "reservation.moved"
    RESERVATION_WAITING = "reservation.waiting"
    RESERVATION_FAILED = "reservation.failed"
    RESOURCE_CREATED = "resource.created"
    RESOURCE_OUT_OF_SERVICE = "resource.out_of_service"
    RESOURCE_IN_SERVICE = "resource.in_service"
    TENANT_DELETED = "tenant.deleted"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_APPROVED = "approval.approved"
    APPROVAL_REJECTED = "approval.rejected"
    APPROVAL_WITHDRAWN = "approval.withdrawn"
    APPROVAL_EXPIRED = "approval.expired"
    MAINTENANCE_SCHEDULED = "maintenance.scheduled"
    MAINTENANCE_STARTED = "maintenance.started"
    MAINTENANCE_ENDED = "maintenance.ended"
    MAINTENANCE_CANCELLED = "maintenance.cancelled"
    MAINTENANCE_TASK_ENDED = "maintenance.task_ended"
    KEY_BREAK_GLASS_USED = "key.break_glass_used"
    BALANCE_LOW = "balance.low"
    BALANCE_DEPLETED = "balance.depleted"
    WEBHOOK_DISABLED = "webhook.disabled"
    CONTROL_PLANE_RESTORED = "control_plane.restored"
    CONTROL_PLANE_LOSSES_REPORTED = "control_plane.losses_reported"
    OPERATION_COMMITTED = "operation.committed"
    TRANSACTION = "transaction"
    OPERATION_REFUSED = "operation.refused"


@dataclass(frozen=True, slots=True)
class Event:
    """An event, written in the transaction of the change that it reports."""

    type: EventType
    subject: str
    correlation_id: UUID
    tenant_id: UUID | None
    payload: JsonObject = field(default_factory=dict)
    operation_key: str | None = None
    request_id: str | None = None
