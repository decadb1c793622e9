"""CHECK constraints of allocations, reservations, claims and what belongs to them."""

from __future__ import annotations

from tests.schema.checks import Check, finite, least, length, one_of, one_of_states
from tests.support.rows import HASH, LATER, NOW, OTHER
from tests.support.states_as_rows import ALLOCATION_STATES, RESERVATION_STATES

_ACTIVE, _RELEASING, _RELEASED = (ALLOCATION_STATES[state] for state in ("active", "releasing", "released"))
_RELEASE_FAILED, _FAILED = ALLOCATION_STATES["release_failed"], ALLOCATION_STATES["failed"]
_CONFIRMED, _CANCELLED, _EXPIRED = (RESERVATION_STATES[state] for state in ("confirmed", "cancelled", "expired"))
_IDLE = {"waits_for": None, "waits_since": None, "waits_until": None}
_OCCUPIED = {"occupied": True, "occupied_from": NOW}
_DEGRADED = {
    "health": "degraded",
    "health_cause": "guest_down",
    "health_since": NOW,
    "proof_of_life_at": NOW,
    "health_until": LATER,
}
_LOST = {**_DEGRADED, "health": "lost", "lost_at": NOW}  # fmt: skip
_CLOSED = {"booked": False, "closed_at": NOW}

_FIRST_BOOT = {"first_boot": "done", "first_boot_since": NOW}
CHECKS = {
    "allocation_absences_inventories_check": least("allocation_absences", "inventories", 1),
    "actor_kind_check": one_of(
        "allocation_timeline", "actor_kind", "tenant", "admin", "billing", "worker", "node", "system"
    ),
    "timeline_kind_check": Check(
        "allocation_timeline",
        ({"kind": "unknown", "to_state": None},),
        ({}, {"kind": "progress", "to_state": None}, {"kind": "note", "to_state": None}),
    ),
    "transition_names_states": Check(
        "allocation_timeline", ({"to_state": None}, {"row_version": None}, {"kind": "note"}, {"kind": "progress"})
    ),
    "active_has_time": Check("allocations", ({**_ACTIVE, "active_at": None},), (_ACTIVE,)),
    "finite_time_check": finite("allocations", "ends_at"),
    "gpu_count_check": least("allocations", "gpus", 1),
    "allocation_state_check": one_of_states("allocations", ALLOCATION_STATES),
    "failed_has_reason": Check(
        "allocations", ({**_FAILED, "failed_at": None}, {**_FAILED, "failure_code": None}, {"failed_at": NOW}), (_FAILED,)
    ),
    "final_waits_for_nothing": Check(
        "allocations",
        (
            _IDLE, {**_ACTIVE, **_IDLE}, {**_RELEASE_FAILED, **_IDLE},
            {**_RELEASED, "waits_for": "worker", "waits_since": NOW, "waits_until": LATER},
            {**_FAILED, "waits_for": "worker", "waits_since": NOW, "waits_until": LATER},
        ),
        (_RELEASED, _FAILED),
    ),
    "first_boot_is_known": Check(
        "allocations", ({**_FIRST_BOOT, "first_boot": "ended"}, {**_FIRST_BOOT, "first_boot": ""}),
        tuple({**_FIRST_BOOT, "first_boot": word}
              for word in ("pending", "done", "degraded", "error", "unknown", "not_applicable")),
    ),
    "first_boot_is_whole": Check(
        "allocations",
        ({"first_boot": "done"}, {"first_boot_since": NOW}, {"first_boot_detail": "d"},
         {**_FIRST_BOOT, "first_boot_detail": "d" * 501}),
        ({}, _FIRST_BOOT, {**_FIRST_BOOT, "first_boot_detail": "d" * 500}),
    ),
    "guest_state_is_known": Check(
        "allocations", ({"guest_state": "down"}, {"guest_state": ""}),
        ({"guest_state": "running"}, {"guest_state": "stopped"}, {"guest_state": "unknown"}, {"guest_state": "rescue"}),
    ),
    "guest_verb_is_known": one_of("allocations", "guest_verb", "reboot", "stop", "start", "rebuild", "rescue"),
    "health_is_known": Check(
        "allocations", ({**_DEGRADED, "health": "ill"},), (_DEGRADED, _LOST)
    ),
    "health_is_whole": Check(
        "allocations",
        (*({**_DEGRADED, name: None} for name in _DEGRADED if name != "health_until"), {"health_until": LATER},
         {**_DEGRADED, "lost_at": NOW}, {**_LOST, "lost_at": None}, {"lost_at": NOW}),
        ({}, _DEGRADED, {**_DEGRADED, "health_until": None}, _LOST),
    ),
    "restart_policy_is_known": one_of("allocations", "restart_policy", "always", "never"),
    "released_has_time": Check("allocations", ({**_RELEASED, "released_at": None}, {**_RELEASING, "released_at": NOW})),
    "releasing_has_time": Check(
        "allocations",
        tuple({**row, "releasing_at": None} for row in (_RELEASING, _RELEASED, _RELEASE_FAILED)),
        (_RELEASING, _RELEASED, _RELEASE_FAILED),
    ),
    "waiting_is_complete": Check(
        "allocations",
        ({"waits_since": None}, {**_RELEASED, "waits_since": NOW}, {"waits_until": None}, {**_RELEASING, "waits_until": None},
         {"state": "provisioning", "waits_until": None}),
        (_ACTIVE, _RELEASE_FAILED),
    ),
    "claim_closed_is_over": Check(
        "claims",
        ({"closed_at": NOW}, {"booked": False}, {"booked": False, **_OCCUPIED, "closed_at": NOW}),
        ({}, _CLOSED, {"booked": False, **_OCCUPIED}),
    ),
    "claim_during_half_open": Check(
        "claims",
        tuple({"during": during} for during in (
            "empty", f"({NOW},{LATER})", f"[{NOW},{LATER}]", f"(,{LATER})", f"[-infinity,{LATER})", f"[{NOW},infinity)",
        )),
        ({}, {"during": f"[{NOW},{LATER})"}),
    ),
    "claim_is_somewhere": Check("claims", ({"resource_id": "seat-0"},), ({}, {"node_id": None, "resource_id": "seat-0"})),
    "claim_occupied_since": Check("claims", ({"occupied": True},), (_OCCUPIED,)),
    "claim_occupied_until": Check(
        "claims",
        ({**_OCCUPIED, "occupied_until": LATER}, {**_CLOSED, "occupied_until": LATER}),
        ({**_CLOSED, "occupied_from": NOW, "occupied_until": LATER},),
    ),
    "claim_units_not_empty": Check("claims", ({"units": "{}"},)),
    "claim_owner_kind_check": Check(
        "claims",
        ({"owner_kind": "unknown"}, {"owner_kind": ""}),
        ({}, {"owner_kind": "reservation"}, {"owner_kind": "maintenance", "tenant_id": None}),
    ),
    "claim_has_tenant": Check(
        "claims",
        ({"tenant_id": None}, {"owner_kind": "reservation", "tenant_id": None}, {"owner_kind": "maintenance"}),
        ({"owner_kind": "maintenance", "tenant_id": None},),
    ),
    "confirmed_has_no_deadline": Check(
        "reservations", ({**_CONFIRMED, "expires_at": LATER}, {**_CONFIRMED, "confirmed_at": None}), (_CONFIRMED,)
    ),
    "hold_has_deadline": Check("reservations", ({"expires_at": None},), (_CANCELLED, _EXPIRED)),
    "reservation_ended_is_complete": Check(
        "reservations",
        (
            {"ended_at": NOW, "ended_event": OTHER, "retire_after": LATER},
            {**_CONFIRMED, "ended_at": NOW, "ended_event": OTHER, "retire_after": LATER},
            {**_CANCELLED, "ended_at": None, "ended_event": None, "retire_after": None},
            {**_CANCELLED, "ended_event": None}, {**_CANCELLED, "retire_after": None},
        ),
        (_CANCELLED,),
    ),
    "reservation_waits_while_live": Check(
        "reservations",
        (
            _IDLE, {**_CONFIRMED, **_IDLE}, {"waits_since": None}, {"waits_until": None},
            {**_CANCELLED, "waits_for": "confirm", "waits_since": NOW}, {**_CANCELLED, "waits_since": NOW},
        ),
        (_CONFIRMED, _CANCELLED),
    ),
    "reservations_ends_at_check": finite("reservations", "ends_at"),
    "reservations_gpus_check": least("reservations", "gpus", 1, sku="h100.slice", region="eu-1"),
    "reservations_gpus_held_check": least("reservations", "gpus_held", 0),
    "reservations_hold_until_check": finite("reservations", "hold_until"),
    "reservations_holder_id_check": length("reservations", "holder_id", 1, 200),
    "reservations_quantity_check": Check(
        "reservations", ({"quantity": 0}, {"quantity": 1025}), ({"quantity": 1}, {"quantity": 1024})
    ),
    "reservations_resources_check": Check(
        "reservations", ({"resources": []}, {"resources": ["r"] * 1025}), ({"resources": ["r"] * 1024},)
    ),
    "reservations_starts_at_check": finite("reservations", "starts_at"),
    "reservations_state_check": Check(
        "reservations", ({**_CANCELLED, "state": "unknown"},), tuple(RESERVATION_STATES.values())
    ),
    "sku_is_complete": Check(
        "reservations",
        (
            {"sku": "s"}, {"gpus": 1}, {"region": "r"}, {"sku": "s", "gpus": 1}, {"sku": "s", "region": "r"},
            {"gpus": 1, "region": "r"},
        ),
        ({"sku": "s", "gpus": 1, "region": "r"},),
    ),
    "window_not_empty": Check("reservations", ({"ends_at": NOW},), ({"ends_at": LATER},)),
    "sha256_digest_check": Check(
        "operations", ({"fingerprint": b"\x01" * 31}, {"fingerprint": b"\x01" * 33}), ({"fingerprint": HASH},)
    ),
    "idempotency_key_check": length("operations", "key", 1, 255),
    "tombstone_is_fenced": Check(
        "operations",
        (
            {"fingerprint": None}, {"fingerprint": None, "status": 409},
            {"fingerprint": None, "status": 200, "code": "operation_fenced"},
            {"fingerprint": None, "status": 409, "code": "resource_busy"},
        ),
        ({"fingerprint": None, "status": 409, "code": "operation_fenced"},),
    ),
    "gpus_used_not_negative": least("tenant_quotas", "gpus_used", 0),
    "tenant_quotas_gpus_limit_check": Check(
        "tenant_quotas", ({"gpus_limit": -1},), ({"gpus_limit": 0}, {"gpus_limit": None})
    ),
    "resources_id_check": Check(
        "resources",
        tuple({"id": name} for name in ("", "-a", "a-", "a b", "x" * 129, ".", "a\n")),
        ({"id": "a"}, {"id": "x" * 128}, {"id": "A.b_c-9"}),
    ),
    "resources_state_check": one_of("resources", "state", "in_service", "out_of_service"),
}  # fmt: skip
