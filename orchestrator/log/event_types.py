"""The schema of every event type: the AsyncAPI document is generated from it, and tests compare every written event with it.

Schemas are JSON Schema and list the members that consumers can rely on; consumers ignore unknown members. Tests also refuse
unlisted members. docs/reference/events.md describes the events in prose.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.log.event_kinds import EventKind, Visibility
from orchestrator.log.event_members import (
    AMOUNT,
    CERTIFICATE,
    FENCE,
    FLAG,
    ID,
    IDS,
    OBJECT,
    SLOTS,
    TEXT,
    TEXTS,
    TIME,
    UNITS,
    WHOLE,
    Schema,
    nullable,
)  # fmt: skip
from orchestrator.log.events import EventType
from orchestrator.log.site_event_types import SITE_EVENT_KINDS

PLACE: Schema = {
    "type": "object",
    "properties": {"node_id": nullable(ID), "resource_id": nullable(TEXT), "units": UNITS, "fence": FENCE},
    "required": ["units", "fence"],
}
_PLACED: Mapping[str, Schema] = {
    "allocation_id": ID, "sku": TEXT, "shape": TEXT, "gpus": WHOLE, "region": TEXT, "node_id": ID, "units": UNITS,
    "fence": FENCE,
}  # fmt: skip
_FROM_RESERVATION: Mapping[str, Schema] = {
    "reservation_id": nullable(ID), "ends_at": nullable(TIME), "turned_over": FLAG,
}  # fmt: skip
_ADOPTED: Mapping[str, Schema] = {"adopted": FLAG}
_TROUBLE: Mapping[str, Schema] = {"code": TEXT, "detail": nullable(TEXT), "next_step": nullable(TEXT)}
_OF_RESERVATION: Mapping[str, Schema] = {"reservation_id": ID, "holder_id": TEXT, "judged_at": TIME}
_BY: Mapping[str, Schema] = {"actor_kind": TEXT}
_BY_OPERATOR: Mapping[str, Schema] = {"actor_id": TEXT}
_NODE: Mapping[str, Schema] = {"node_id": ID, "name": TEXT}
_NODE_STATE: Mapping[str, Schema] = {"node_id": ID, "from": TEXT, "to": TEXT}
_SLOTS_ENDED = {"node_id": ID, "slots": SLOTS, "outcome": TEXT, "failure": nullable(TEXT)}
_ATTESTED = {"node_id": ID, "attestation_id": ID, "verdict": TEXT, "code": nullable(TEXT), "detail": TEXT}
_BMC_RESET = {"node_id": ID, "task_id": ID, "outcome": TEXT, "failure": nullable(TEXT)}
_PORTS_MOVED = {**_BMC_RESET, "place": nullable(TEXT), "vlan": nullable(WHOLE), "isolation": nullable(TEXT)}
_RUN_ENDED = {"node_id": ID, "deploy_run_id": ID, "kind": TEXT, "outcome": TEXT, "failure": nullable(TEXT)}
_ORPHAN: Mapping[str, Schema] = {"orphan_id": ID, "node_id": ID, "name": TEXT, "allocation_id": nullable(TEXT)}
_BALANCE: Mapping[str, Schema] = {
    "settled_micro_units": AMOUNT, "accruing_micro_units": WHOLE, "available_micro_units": AMOUNT,
    "low_threshold_micro_units": nullable(AMOUNT), "rate_micro_units_per_second": WHOLE, "runs_out_at": nullable(TIME),
    "judged_at": TIME,
}  # fmt: skip

_APPROVAL: Mapping[str, Schema] = {
    "approval_id": ID, "action": TEXT, "subject": TEXT, "requested_by": OBJECT, "decided_by": nullable(OBJECT),
    "reason": nullable(TEXT), "waits_until": nullable(TIME),
}  # fmt: skip

_MAINTENANCE: Mapping[str, Schema] = {
    "window_id": ID, "starts_at": TIME, "ends_at": TIME, "reason": TEXT, "nodes": IDS,
}  # fmt: skip

_DRAIN: Mapping[str, Schema] = {"deadline": nullable(TIME), "at_deadline": TEXT, "reason": nullable(TEXT)}

_OUTAGE: Mapping[str, Schema] = {
    "allocation_id": ID, "cause": TEXT, "since": TIME, "last_proof_of_life_at": TIME, "fence": FENCE,
}  # fmt: skip

_FAULT: Mapping[str, Schema] = {"report_id": ID, "allocation_id": ID, "symptom": TEXT, "fence": FENCE}

_T, _O = Visibility.TENANT, Visibility.OPERATOR

EVENT_KINDS: Mapping[EventType, EventKind] = {
    EventType.PROVISIONING_REQUESTED: EventKind(
        _T, "an allocation was created and its provisioning was requested", _PLACED, {**_FROM_RESERVATION, **_ADOPTED}
    ),
    EventType.PROVISIONING_WAITING: EventKind(
        _T, "an allocation waits for the cleanup of its units", _PLACED, _FROM_RESERVATION,
    ),
    EventType.PROVISIONING_ACTIVE: EventKind(
        _T, "an allocation is active; metering begins at active_at",
        {
            "allocation_id": ID, "sku": TEXT, "shape": TEXT, "gpus": WHOLE, "region": TEXT, "node_id": ID,
            "price_version": WHOLE, "active_at": TIME, "fence": FENCE,
        }, _ADOPTED,
    ),
    EventType.PROVISIONING_FAILED: EventKind(
        _T, "an allocation failed",
        {"allocation_id": ID, **_TROUBLE, "node_id": ID, "failed_at": TIME, "fence": FENCE},
    ),
    EventType.RELEASING_REQUESTED: EventKind(
        _T, "a release was requested; metering ends at releasing_at",
        {"allocation_id": ID, "reason": nullable(TEXT), **_BY, "releasing_at": nullable(TIME), "fence": FENCE},
        {"last_proof_of_life_at": TIME, "outage_since": TIME, "outage_cause": TEXT, "outage_lost_at": nullable(TIME)},
    ),
    EventType.RELEASING_COMPLETED: EventKind(
        _T, "an allocation was released; the cleanup of its units is proven",
        {
            "allocation_id": ID, "hard_stopped": FLAG, "active_at": nullable(TIME), "releasing_at": nullable(TIME),
            "released_at": TIME, "fence": FENCE,
        },
        {"by": TEXT, "evidence": OBJECT, "wipe_certificate_sha256": nullable(TEXT)},
    ),
    EventType.RELEASE_FAILED: EventKind(
        _T, "the retries of a release are exhausted; the units stay occupied",
        {"allocation_id": ID, "attempts": WHOLE, **_TROUBLE, "release_failed_at": TIME, "fence": FENCE},
    ),
    EventType.ALLOCATION_UPDATED: EventKind(
        _T, "the name, the labels or the end of an allocation changed",
        {
            "allocation_id": ID, "changed": TEXTS, "name": nullable(TEXT), "labels": OBJECT, "row_version": WHOLE, **_BY,
            "fence": FENCE,
        },
        {"ends_at": nullable(TIME), "judged_at": TIME, "claim_fence": FENCE},
    ),
    EventType.ALLOCATION_MAINTENANCE: EventKind(
        _T, "operators need units of an allocation in a maintenance window; release it or shorten it until the deadline",
        {"allocation_id": ID, "window_id": ID, "starts_at": TIME, "ends_at": TIME, "deadline": TIME, "reason": TEXT},
    ),
    EventType.ALLOCATION_MAINTENANCE_CANCELLED: EventKind(
        _T, "a maintenance window does not need the units of an allocation any more",
        {"allocation_id": ID, "window_id": ID, "starts_at": TIME, "ends_at": TIME, "reason": TEXT},
    ),
    EventType.ALLOCATION_NODE_DRAINING: EventKind(
        _T, "operators empty the node of an allocation, until the deadline if there is one; at_deadline: stay or release",
        {"allocation_id": ID, "node_id": ID, **_DRAIN},
    ),
    EventType.ALLOCATION_NODE_DRAIN_CANCELLED: EventKind(
        _T, "operators do not empty the node of an allocation any more", {"allocation_id": ID, "node_id": ID}
    ),
    EventType.ALLOCATION_VERB_REQUESTED: EventKind(
        _T, "a reboot, stop, start, rebuild or rescue of an active allocation was requested",
        {"allocation_id": ID, "verb": TEXT, **_BY, "fence": FENCE},
    ),
    EventType.ALLOCATION_VERB_COMPLETED: EventKind(
        _T, "a verb of an active allocation has ended; metering goes on, also while the guest is stopped",
        {"allocation_id": ID, "verb": TEXT, "guest_state": TEXT, "fence": FENCE},
    ),
    EventType.ALLOCATION_VERB_FAILED: EventKind(
        _T, "a verb of an active allocation failed; the allocation stays active",
        {"allocation_id": ID, "verb": TEXT, "guest_state": TEXT, **_TROUBLE, "fence": FENCE},
    ),
    EventType.ALLOCATION_DEGRADED: EventKind(
        _T, "an active allocation is without service and counts as lost at waits_until, or its guest runs and does not answer",
        {**_OUTAGE, "waits_until": nullable(TIME)},
    ),
    EventType.ALLOCATION_RECOVERED: EventKind(
        _T, "a degraded or lost allocation serves again", {**_OUTAGE, "recovered_at": TIME, "lost_at": nullable(TIME)}
    ),
    EventType.ALLOCATION_LOST: EventKind(
        _T, "an active allocation is without service and does not recover by itself; waits_until: when it is released",
        {**_OUTAGE, "waits_until": nullable(TIME)},
    ),
    EventType.ALLOCATION_FIRST_BOOT_ENDED: EventKind(
        _T, "cloud-init of an active allocation's guest has ended, by the guest's own word: done, degraded or error",
        {"allocation_id": ID, "status": TEXT, "detail": nullable(TEXT), "ended_at": TIME, "fence": FENCE},
    ),
    EventType.ALLOCATION_FAULT_REPORTED: EventKind(
        _T, "the tenant reported a fault of an active allocation; its units go into quarantine at its release",
        {**_FAULT, "replacement_id": nullable(ID)},
    ),
    EventType.ALLOCATION_REPLACED: EventKind(
        _T, "the replacement of a faulty allocation is active, and the faulty one is released",
        {**_FAULT, "replacement_id": ID},
    ),
    EventType.ALLOCATION_REPLACEMENT_FAILED: EventKind(
        _T, "the replacement of a faulty allocation ended otherwise: failed, released (the old one ended first), overdue",
        {**_FAULT, "replacement_id": ID, "outcome": TEXT},
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
    EventType.RESERVATION_RELEASED: EventKind(_T, "a confirmed window ended unused", {**_OF_RESERVATION, **_BY}),
    EventType.RESERVATION_CONSUMED: EventKind(
        _T, "the last claim of a reservation was turned over to an allocation",
        {**_OF_RESERVATION, "allocation_ids": IDS}, _BY,
    ),
    EventType.RESERVATION_MOVED: EventKind(
        _T, "a claim of a reservation moved to other units",
        {**_OF_RESERVATION, "from": PLACE, "to": PLACE, "reason": TEXT}, _BY,
    ),
    EventType.RESERVATION_WAITING: EventKind(
        _T, "a reservation that starts by itself waits for its node, which is offline",
        {**_OF_RESERVATION, "reason": TEXT, "waits_until": TIME}, _BY,
    ),
    EventType.RESERVATION_FAILED: EventKind(
        _T, "a reservation could not start by itself", {**_OF_RESERVATION, "code": TEXT, "detail": nullable(TEXT)}, _BY
    ),
    EventType.RESERVATION_ENDING: EventKind(
        _T, "an allocation reaches its ends_at soon",
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
        _O, "a task of a node ended",
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
        _O, "a node was enrolled and has its certificate", {**_NODE, "epoch": WHOLE, "hardware_id": TEXT, "state": TEXT}
    ),
    EventType.NODE_CERTIFICATE_ISSUED: EventKind(
        _O, "the issuer signed a certificate for a node; digests in lower-case hex", {"node_id": ID, **CERTIFICATE}
    ),
    EventType.NODE_ONLINE: EventKind(_O, "a node is online again", _NODE),
    EventType.NODE_OFFLINE: EventKind(_O, "a node is offline", {**_NODE, "last_seen_at": nullable(TIME)}),
    EventType.NODE_CORDONED: EventKind(_O, "a node was cordoned: nothing new is placed on it", _NODE_STATE),
    EventType.NODE_UNCORDONED: EventKind(_O, "a node was uncordoned", _NODE_STATE),
    EventType.NODE_DRAINING: EventKind(
        _O, "a node is draining, or its drain got another deadline", _NODE_STATE,
        {"deadline": TIME, "at_deadline": TEXT, "reason": TEXT},
    ),
    EventType.NODE_DRAINED: EventKind(_O, "no claim is left on a draining node", {**_NODE, "begun_at": TIME}),
    EventType.NODE_DRAIN_OVERDUE: EventKind(
        _O, "the deadline of a drain is over, and claims are left on the node", {**_NODE, **_DRAIN, "claims": WHOLE}
    ),
    EventType.NODE_RETIRED: EventKind(_O, "a node was retired", {**_NODE_STATE, "reason": TEXT}),
    EventType.NODE_CERTIFICATES_REVOKED: EventKind(
        _O, "the certificates of a node were revoked", {"node_id": ID, "reason": TEXT, "certificates": WHOLE}
    ),
    EventType.NODE_IDENTITY_CONFLICT: EventKind(
        _O, "two keys were used as the identity of a node; its calls are refused until it enrols again",
        {**_NODE, "epoch": WHOLE, "serial": TEXT},
    ),
    EventType.NODE_CLEANUP_BLOCKED: EventKind(
        _O, "the retries of a cleanup after a failure are exhausted; the units stay occupied",
        {"node_id": ID, "allocation_id": ID, **_TROUBLE, "fence": FENCE},
    ),
    EventType.NODE_FAULT_REPORTED: EventKind(
        _O, "a tenant reported a fault of slots",
        {
            "report_id": ID, "node_id": ID, "slots": SLOTS, "allocation_id": ID, "reported_tenant_id": ID,
            "symptom": TEXT, "replacement_id": nullable(ID),
        },
    ),
    EventType.NODE_SLOT_QUARANTINED: EventKind(
        _O, "an operator, a health probe or a tenant's fault report took a slot out of service",
        {"node_id": ID, "slot": WHOLE, "reason": TEXT, "source": TEXT}, {"report_id": ID},
    ),
    EventType.NODE_SLOT_RETURNED: EventKind(
        _O, "an operator, or a burn-in that passed, returned a slot from quarantine",
        {"node_id": ID, "slot": WHOLE, "note": TEXT}, {"burn_in_id": ID},
    ),
    EventType.NODE_BURN_IN_ENDED: EventKind(_O, "a burn-in of slots in quarantine has ended", {**_SLOTS_ENDED, "burn_in_id": ID}),
    EventType.NODE_GPU_RESET_ENDED: EventKind(_O, "a reset of GPUs has ended", {**_SLOTS_ENDED, "gpu_reset_id": ID}),
    EventType.NODE_BMC_RESET_ENDED: EventKind(_O, "a reset of a BMC has ended", _BMC_RESET),
    EventType.NODE_PORTS_MOVED: EventKind(_O, "the ports of a machine were to be moved", _PORTS_MOVED),
    EventType.NODE_ATTESTATION_ENDED: EventKind(_O, "an attestation on demand has ended", _ATTESTED),
    EventType.NODE_DEPLOY_RUN_ENDED: EventKind(
        _O, "a run of a deploy system has ended", _RUN_ENDED, {"findings": {"type": "array", "items": OBJECT}}
    ),
    EventType.NODE_ORPHAN_FOUND: EventKind(
        _O, "a node runs a guest that the control plane does not know",
        {**_ORPHAN, "slots": SLOTS, "fence": nullable(FENCE), "allocation_state": nullable(TEXT)},
    ),
    EventType.NODE_ORPHAN_ADOPTED: EventKind(
        _O, "an operator adopted an orphan", {**_ORPHAN, "adopted_for": nullable(ID), "reason": TEXT}
    ),
    EventType.NODE_ORPHAN_DESTROYED: EventKind(
        _O, "an orphan was destroyed", {**_ORPHAN, "slots": SLOTS, "decided_by": nullable(TEXT)}
    ),
    EventType.NODE_UPDATED: EventKind(
        _O, "an operator changed what is declared of a node, or approved a topology with other NUMA halves or the first slots",
        {**_NODE, "changed": TEXTS, "address": nullable(TEXT), "half_slots": WHOLE}, {"slot_count": WHOLE},
    ),
    EventType.NODE_TOPOLOGY_APPROVED: EventKind(
        _O, "the topology of a node was approved, by an operator or because it equals what was declared",
        {**_NODE, "digest": TEXT, "approved_by": TEXT},
    ),
    EventType.NODE_TOPOLOGY_DRIFTED: EventKind(
        _O, "a node differs from its approved topology; `slots` are out of service",
        {**_NODE, "digest": TEXT, "slots": SLOTS, "differences": {"type": "array", "items": OBJECT}},
    ),
    EventType.NODE_TOPOLOGY_RESTORED: EventKind(
        _O, "nothing of a node differs any more; its slots serve again", {**_NODE, "digest": TEXT}),
    EventType.TENANT_DELETED: EventKind(
        _O, "an operator deleted a tenant that held nothing; counts of what was revoked and removed with it",
        {
            "tenant_id": ID, "name": TEXT, "deleted_at": TIME, "api_keys": WHOLE, "ssh_keys": WHOLE, "webhooks": WHOLE,
            "subscriptions": WHOLE, "policies": WHOLE,
        },
    ),
    EventType.APPROVAL_REQUESTED: EventKind(
        _O, "an operator requested an action that a second operator must approve; nothing was done yet", _APPROVAL
    ),
    EventType.APPROVAL_APPROVED: EventKind(
        _O, "a second operator approved a request, and its action was done in the same transaction", _APPROVAL
    ),
    EventType.APPROVAL_REJECTED: EventKind(_O, "a second operator rejected a request", _APPROVAL),
    EventType.APPROVAL_WITHDRAWN: EventKind(_O, "the requester withdrew a request", _APPROVAL),
    EventType.APPROVAL_EXPIRED: EventKind(_O, "a request was not approved before its deadline", _APPROVAL),
    EventType.MAINTENANCE_SCHEDULED: EventKind(_O, "a maintenance window was committed", _MAINTENANCE),
    EventType.MAINTENANCE_STARTED: EventKind(_O, "a maintenance window started", _MAINTENANCE),
    EventType.MAINTENANCE_ENDED: EventKind(_O, "a maintenance window ended; its units are free", _MAINTENANCE),
    EventType.MAINTENANCE_CANCELLED: EventKind(_O, "a maintenance window was cancelled before it started", _MAINTENANCE),
    EventType.MAINTENANCE_TASK_ENDED: EventKind(
        _O, "the task of a maintenance window ended on a node, or does not run there any more",
        {"window_id": ID, "node_id": ID, "kind": TEXT, "plugin": nullable(TEXT), "state": TEXT, "failure": nullable(TEXT)},
    ),
    EventType.KEY_BREAK_GLASS_USED: EventKind(
        _O, "a break-glass key was used; at most one event per key and minute, committed before the request is served",
        {
            "key_id": ID, "name": TEXT, "prefix": TEXT, "role": TEXT, "owner": nullable(TEXT), "source": nullable(TEXT),
            "used_at": TIME,
        },
    ),
    EventType.BALANCE_LOW: EventKind(_T, "a prepaid balance dropped below its threshold", _BALANCE),
    EventType.BALANCE_DEPLETED: EventKind(
        _T, "a prepaid balance is depleted; billing releases the tenant's allocations", _BALANCE),
    EventType.WEBHOOK_DISABLED: EventKind(_T, "a webhook was disabled", {"webhook_id": ID, "reason": TEXT}),
    EventType.CONTROL_PLANE_RESTORED: EventKind(
        _T, "the database went back to an earlier moment: what was acknowledged after restored_to may be lost",
        {"restored_to": nullable(TIME), "begun_at": TIME, "closed_at": TIME, "first": nullable(WHOLE), "last": nullable(WHOLE)},
        {"losses": nullable(WHOLE)},
    ),
    EventType.CONTROL_PLANE_LOSSES_REPORTED: EventKind(
        _T, "at most 100 objects and operations of the tenant that were acknowledged and lost by a restore; more follow",
        {"part": WHOLE, "lost": {"type": "array", "items": OBJECT}, "missing": WHOLE},
    ),
    EventType.OPERATION_COMMITTED: EventKind(
        _T, "a write was committed that no other event carries; action and object as in the audit",
        {"code": TEXT, "status": WHOLE, "judged_at": TIME}, {"action": TEXT, "object": TEXT},
    ),
    EventType.TRANSACTION: EventKind(
        _T, "a transaction changed keys and values of a namespace",
        {"operations": {"type": "array", "items": OBJECT}, "judged_at": TIME}, {"principal_id": ID},
    ),
    EventType.OPERATION_REFUSED: EventKind(
        _T, "a write was refused, and the refusal is stored",
        {"code": TEXT, "reason": nullable(TEXT), "status": WHOLE, "judged_at": TIME},
    ),
    **SITE_EVENT_KINDS,
}  # fmt: skip
"""Every type but those of the log itself (`OF_THE_LOG`), which are written by no command."""
