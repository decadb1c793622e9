"""CHECK constraints of the catalogue, nodes, tasks, tenants, the log, billing, webhooks and the key-value store."""

from __future__ import annotations

from tests.schema.checks import Check, both, digest, least, length, one_of, one_of_states, only_row, whole_or_absent
from tests.schema.checks_of_catalogue import IMAGES
from tests.support.rows import HASH, LATER, NOW, OTHER, TENANT
from tests.support.states_as_rows import ORPHAN_STATES, TASK_STATES

_TOP_UP = {
    "kind": "top_up", "actor_id": "1", "operation_key": "k", "allocation_id": None, "sku": None, "gpus": None,
    "price_version": None, "price_micro_per_gpu_second": None, "starts_at": None, "ends_at": None, "gpu_microseconds": None,
    "version": None,
}  # fmt: skip
_WITHDRAWAL = {**_TOP_UP, "kind": "withdrawal", "reference": "why"}
_DESTROYED = ORPHAN_STATES["destroyed"]
_NAMES = tuple({"name": name} for name in ("", "-a", "a-", "A", "a_b", "x" * 64, "a\n"))
_DISABLED = {"state": "disabled", "disabled_reason": "gone", "disabled_at": NOW}
_OF_AUDIT = {"kind": "audit", "audit_first": 1, "audit_last": 2, "audit_hash": HASH, "deleted": 2}
_ENDED_DELIVERY = {"state": "succeeded", "next_attempt_at": None, "ended_at": NOW}
_OF_WAIT = {"waits_for": "node", "waits_since": NOW, "waits_until": LATER}
_OF_FINDING = {"found": "{}", "found_digest": "d", "found_at": NOW}
_OF_APPROVAL = {"approved": "{}", "approved_digest": "d", "approved_at": NOW, "approved_by": "worker:discovery"}
_TPM = {"ek_sha256": b"\x01" * 32, "ek_public": b"ek", "ak_public": b"ak"}
_ACTIVE = {"state": "active", "started_at": NOW, "waits_for": "end", "waits_since": NOW, "waits_until": LATER}
_OVER = {**_ACTIVE, "state": "ended", "ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}
_OFF = {**_OVER, "state": "cancelled", "started_at": None}
_QUOTE = {"attestation_secret": HASH, "quote": b"quote", "quote_signature": b"signature"}
_PERSON = {"decided_by": OTHER, "decided_role": "admin", "decided_break_glass": False}
_EXPIRED = {"state": "expired", "ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}
_REJECTED = {**_EXPIRED, **_PERSON, "state": "rejected"}
_APPROVED = {**_REJECTED, "state": "approved", "result": "{}"}

CHECKS = {
    "api_key_access_role_fits": Check(
        "api_keys",
        (
            {"access_role": "member"},
            {"access_role": "tenant"},
            {"role": "tenant", "tenant_id": TENANT, "access_role": "support"},
        ),
        (
            {"access_role": "fleet"},
            {"role": "tenant", "tenant_id": TENANT, "access_role": "billing"},
        ),
    ),
    "approvals_action_check": Check(
        "approvals",
        ({"action": "unknown"},),
        (
            {}, {"action": "api_key.create", "subject_id": None}, {"action": "api_key.revoke"}, {"action": "api_key.rotate"},
        ),
    ),
    "approvals_secret_hash_check": digest("approvals", "secret_hash"),
    "approvals_state_check": Check(
        "approvals", ({**_EXPIRED, "state": "unknown"},),
        ({}, _APPROVED, _REJECTED, {**_REJECTED, "state": "withdrawn"}, _EXPIRED),
    ),
    "approval_waits_while_pending": Check(
        "approvals",
        (
            {"waits_for": None}, {"waits_since": None}, {"waits_until": None}, {"ended_at": NOW},
            {**_EXPIRED, "ended_at": None}, {**_EXPIRED, "waits_for": "approval"}, {**_EXPIRED, "waits_until": LATER},
        ),
        ({}, _EXPIRED),
    ),
    "approval_has_object": Check(
        "approvals", ({"subject_id": None}, {"action": "api_key.create"}), ({"action": "api_key.create", "subject_id": None},)
    ),
    "approval_decision_is_whole": Check(
        "approvals", ({**_REJECTED, "decided_role": None}, {**_REJECTED, "decided_break_glass": None}), (_REJECTED,)
    ),
    "approval_is_decided": Check(
        "approvals", (_PERSON, {**_EXPIRED, **_PERSON}, {**_EXPIRED, "state": "rejected"}), (_REJECTED,)
    ),
    "approval_has_result": Check(
        "approvals", ({"result": "{}"}, {**_APPROVED, "result": None}, {**_REJECTED, "result": "{}"}), (_APPROVED,)
    ),
    "approval_secret_ends": Check(
        "approvals", ({**_EXPIRED, "secret_hash": b"\x01" * 32},), ({"secret_hash": b"\x01" * 32},)
    ),
    "maintenance_planned_is_part": Check(
        "maintenance_units", ({"planned": "{[2,4)}"},), ({"planned": "{[1,3)}"}, {"planned": "{}"})
    ),
    "maintenance_reason_is_bounded": length("maintenance_windows", "reason", 1, 500),
    "maintenance_started": Check(
        "maintenance_windows",
        ({"started_at": NOW}, {**_ACTIVE, "started_at": None}, {**_OVER, "started_at": None}, {**_OFF, "started_at": NOW}),
        (_ACTIVE, _OVER, _OFF),
    ),
    "maintenance_units_not_empty": Check("maintenance_units", ({"units": "{}"},)),
    "maintenance_waits_while_open": Check(
        "maintenance_windows",
        (
            {"waits_for": "end"}, {"waits_since": None}, {"waits_until": LATER}, {"ended_at": NOW},
            {**_ACTIVE, "waits_for": "start"}, {**_ACTIVE, "waits_until": NOW}, {**_ACTIVE, "ended_at": NOW},
            {**_OVER, "ended_at": None}, {**_OVER, "waits_for": "end"}, {**_OVER, "waits_since": NOW},
        ),
        ({}, _ACTIVE, _OVER, _OFF),
    ),
    "maintenance_window_is_finite": Check(
        "maintenance_windows",
        ({"ends_at": NOW}, {"ends_at": "infinity"}, {"starts_at": "-infinity", "waits_until": "-infinity"}),
    ),
    "wipe_key_set_digest": Check("wipe_key_sets", ({"sha256": b"x"},)),
    "wipe_chain_head": Check("wipe_chains", ({"number": 0}, {"sha256": b"x"})),
    "wipe_certificate_link": Check(
        "wipe_certificates",
        ({"number": 0}, {"sha256": b"x"}, {"number": 2}, {"previous_sha256": b"x"}),
        ({}, {"number": 2, "previous_sha256": b"x"}),
    ),
    "maintenance_window_state": Check("maintenance_windows", ({**_OVER, "state": "unknown"},), ({}, _ACTIVE, _OVER, _OFF)),
    "archive_segment_kind": Check(
        "archive_segments", ({"kind": "events"}, {"kind": ""}), ({"kind": "webhook_deliveries"},)
    ),
    "archive_segment_of_audit": Check(
        "archive_segments",
        (
            {"kind": "audit"},
            {**_OF_AUDIT, "kind": "allocations"},
            {**_OF_AUDIT, "audit_hash": None},
            {**_OF_AUDIT, "audit_first": 3, "audit_last": 2, "deleted": 0},
            {**_OF_AUDIT, "audit_first": 0},
            {**_OF_AUDIT, "audit_last": None},
            {**_OF_AUDIT, "deleted": 1},
        ),
        (_OF_AUDIT,),
    ),
    "archive_use_kind": Check("archive_uses", ({"kind": "allocations"}, {"kind": ""})),
    "archive_segments_deleted_check": least("archive_segments", "deleted", 0),
    "archive_segments_manifest_sha256_check": Check(
        "archive_segments", ({"manifest_sha256": "0" * 63}, {"manifest_sha256": "G" * 64}), ({"manifest_sha256": "f" * 64},)
    ),
    "archive_segments_sequence_check": least("archive_segments", "sequence", 1),
    "api_key_break_glass_is_operators": Check(
        "api_keys",
        ({"role": "tenant", "tenant_id": TENANT, "break_glass": True},),
        ({"break_glass": True}, {"role": "tenant", "tenant_id": TENANT}),
    ),
    "api_key_role_has_scope": Check(
        "api_keys",
        ({"role": "tenant"}, {"tenant_id": TENANT}),
        ({}, {"role": "tenant", "tenant_id": TENANT}),
    ),
    "api_keys_name_check": length("api_keys", "name", 1, 100),
    "api_keys_owner_check": length("api_keys", "owner", 1, 100),
    "api_keys_role_check": Check("api_keys", ({"role": "unknown"},)),
    "api_keys_secret_hash_check": digest("api_keys", "secret_hash"),
    "balances_low_threshold_micro_units_check": least("balances", "low_threshold_micro_units", 0),
    "only_prepaid_is_looked_at": Check(
        "balances", ({"look_at": NOW}, {"low_told_at": NOW}), ({"prepaid": True, "look_at": NOW, "low_told_at": NOW},)
    ),
    "consumer_positions_version_check": least("consumer_positions", "version", 0),
    "dead_letter_settled_has_time": Check(
        "dead_letters", ({"state": "retried"}, {"state": "discarded"}, {"settled_at": NOW}),
        ({"state": "retried", "settled_at": NOW},),
    ),
    "dead_letter_settled_waits_for_nothing": Check(
        "dead_letters", ({"state": "retried", "settled_at": NOW, "retry_asked_at": NOW},), ({"retry_asked_at": NOW},)
    ),
    "dead_letters_consumer_check": length("dead_letters", "consumer", 1, 100),
    "dead_letters_detail_check": length("dead_letters", "detail", 0, 1000),
    "dead_letters_event_type_check": length("dead_letters", "event_type", 0, 100),
    "dead_letters_excerpt_check": length("dead_letters", "excerpt", 0, 4000),
    "dead_letters_reason_check": one_of("dead_letters", "reason", "unreadable", "stub", "refused", "handler_error"),
    "dead_letters_state_check": Check(
        "dead_letters", ({"state": "unknown", "settled_at": NOW},), ({"state": "discarded", "settled_at": NOW},)
    ),
    "dead_letters_tries_check": least("dead_letters", "tries", 1),
    "dead_letters_version_check": least("dead_letters", "version", 1),
    "enrolment_tokens_token_hash_check": digest("enrolment_tokens", "token_hash"),
    "function_generation_generation_check": least("function_generation", "generation", 0),
    "function_generation_one_check": only_row("function_generation"),
    "oldest_process_is_a_revision": Check(
        "function_generation", ({"oldest_process": "47"}, {"oldest_process": "head"}), ({"oldest_process": "0047"},)
    ),
    "deprecation_is_whole": Check(
        "sql_functions", ({"deprecated_at": NOW}, {"deprecated_in": 2}), ({"deprecated_at": NOW, "deprecated_in": 2},)
    ),
    "sql_functions_generation_check": least("sql_functions", "generation", 1),
    "sql_functions_sha256_check": Check(
        "sql_functions", tuple({"sha256": text} for text in ("0" * 63, "0" * 65, "A" * 64, "g" * 64)), ({"sha256": "0af9" * 16},)
    ),
    **IMAGES,
    "key_bounded": Check("kv_keys", ({"key": b""}, {"key": b"k" * 2049}), ({"key": b"k" * 2048},)),
    "bytes_counted": least("kv_namespaces", "bytes", 0),
    "keys_counted": least("kv_namespaces", "keys", 0),
    "ledger_amount_micro_units_check": least("ledger", "amount_micro_units", 0),
    "ledger_kind_check": Check("ledger", ({**_TOP_UP, "kind": "unknown"},), ({}, _TOP_UP, _WITHDRAWAL, {"kind": "credit"})),
    "payment_is_whole": Check(
        "ledger",
        (
            {**_TOP_UP, "actor_id": None}, {**_TOP_UP, "operation_key": None},
            {**_TOP_UP, "actor_id": None, "operation_key": None},
            {"actor_id": "1", "operation_key": "k"}, {"kind": "credit", "actor_id": "1", "operation_key": "k"},
        ),
        (_TOP_UP,),
    ),
    "usage_is_whole": Check(
        "ledger",
        tuple({column: None} for column in (
            "allocation_id", "sku", "gpus", "price_version", "price_micro_per_gpu_second", "starts_at", "ends_at",
            "gpu_microseconds", "version",
        )),
        ({}, _TOP_UP),
    ),
    "withdrawal_says_why": Check("ledger", ({**_WITHDRAWAL, "reference": None},), (_WITHDRAWAL,)),
    "log_first_one_check": only_row("log_first"),
    "log_first_version_check": least("log_first", "version", 1),
    "audit_anchor_one_check": only_row("audit_anchor"),
    "audit_head_one_check": only_row("audit_head"),
    "audit_stream_name": one_of("audit_streams", "name", "nats", "syslog"),
    "audit_stream_position": least("audit_streams", "sequence", 0),
    "audit_stream_error_is_short": Check(
        "audit_streams",
        ({"failing_since": NOW, "last_error": "x" * 501},),
        ({"failing_since": NOW, "last_error": "x" * 500},),
    ),
    "audit_stream_lease_is_whole": Check(
        "audit_streams", ({"leased_by": OTHER}, {"leased_until": NOW}), ({}, {"leased_by": OTHER, "leased_until": NOW})
    ),
    "audit_stream_failure_is_whole": Check(
        "audit_streams", ({"failing_since": NOW}, {"last_error": "x"}), ({}, {"failing_since": NOW, "last_error": "x"})
    ),
    "log_head_one_check": only_row("log_head"),
    "log_head_epoch": Check(
        "log_head", ({"epoch": ""}, {"epoch": "0a1b2c3"}, {"epoch": "0A1B2C3D"}, {"epoch": "0a1b2c3d-"}), ({"epoch": "0a1b2c3d"},)
    ),
    "log_stream_first_version_check": least("log_stream", "first_version", 1),
    "log_stream_one_check": only_row("log_stream"),
    "log_truncation_blocked": Check(
        "log_truncation", ({"blocked_since": NOW}, {"blocked_below": 1}), ({"blocked_since": NOW, "blocked_below": 1},)
    ),
    "log_truncation_one_check": only_row("log_truncation"),
    "closed_whole": Check(
        "metering_intervals", ({"ended_at": LATER}, {"closed_version": 2}), ({"ended_at": LATER, "closed_version": 2},)
    ),
    "metering_intervals_gpus_check": least("metering_intervals", "gpus", 1),
    "metering_intervals_price_micro_per_gpu_second_check": least("metering_intervals", "price_micro_per_gpu_second", 0),
    "certificate_requests_key_sha256_check": digest("certificate_requests", "key_sha256"),
    "attestation_secret_has_32_bytes": digest("attestation_challenges", "secret"),
    "topology_waits_for_node": Check("node_topologies", whole_or_absent(_OF_WAIT), ({}, _OF_WAIT)),
    "topology_found_is_whole": Check("node_topologies", whole_or_absent(_OF_FINDING), ({}, _OF_FINDING)),
    "topology_approved_is_whole": Check("node_topologies", whole_or_absent(_OF_APPROVAL), ({}, _OF_APPROVAL)),
    "topology_failure_is_bounded": length("node_topologies", "failure", 0, 500),
    "topology_drift_has_time": Check(
        "node_topologies",
        ({"drifted_slots": [1]}, {"drifted_since": NOW}), ({}, {"drifted_slots": [1], "drifted_since": NOW}),
    ),
    "health_waits_for_node": Check("node_health", whole_or_absent(_OF_WAIT), ({}, _OF_WAIT)),
    "health_report_is_whole": Check(
        "node_health", ({"report": "{}"}, {"reported_at": NOW}), ({}, {"report": "{}", "reported_at": NOW})
    ),
    "health_failure_is_bounded": length("node_health", "failure", 0, 500),
    "quarantine_source": one_of("slot_quarantines", "source", "operator", "probe", "release"),
    "node_tpm_ek_is_sha256": digest("node_tpms", "ek_sha256"),
    "node_tpm_policy": one_of("node_tpms", "policy", "off", "offered", "required"),
    "pool_attestation_policy": one_of("pool_attestations", "policy", "off", "offered", "required"),
    "node_tpm_keys_are_complete": Check(
        "node_tpms",
        ({**_TPM, "ek_public": None}, {**_TPM, "ak_public": None}, {**_TPM, "ek_sha256": None}),
        (_TPM, {"ek_sha256": b"\x01" * 32}),
    ),
    "quote_is_complete": Check(
        "certificate_requests",
        ({**_QUOTE, "quote": None}, {**_QUOTE, "quote_signature": None}, {**_QUOTE, "attestation_secret": None}),
        (_QUOTE,),
    ),
    "issued_or_refused": Check(
        "certificate_requests", ({"serial": "02", "refusal": "over"},), ({"serial": "02"}, {"refusal": "over"})
    ),
    "authority_key_is_sha256": digest("node_certificates", "authority_key_sha256"),
    "node_certificates_key_sha256_check": digest("node_certificates", "key_sha256"),
    "return_is_whole": Check(
        "slot_quarantines", ({"returned_at": NOW}, {"returned_at": NOW, "returned_by": "b"}, {"note": "n"}),
        ({}, {"returned_at": NOW, "returned_by": "b", "note": "n"}),
    ),
    "node_orphans_state_check": one_of_states("node_orphans", ORPHAN_STATES),
    "orphan_decision_is_complete": Check(
        "node_orphans", ({"decided_by": OTHER}, {"decided_at": NOW}), ({"decided_by": OTHER, "decided_at": NOW},)
    ),
    "orphan_destroyed_by_proof": Check(
        "node_orphans",
        ({**_DESTROYED, "destroyed_at": None}, {**_DESTROYED, "proof": None}, {"destroyed_at": NOW}, {"proof": "{}"}),
        (_DESTROYED,),
    ),
    "orphan_waits_unless_destroyed": Check(
        "node_orphans",
        (
            {"waits_for": None, "waits_since": None}, {"waits_since": None}, {"state": "destroying"},
            {**_DESTROYED, "waits_for": "operator", "waits_since": NOW}, {**_DESTROYED, "waits_since": NOW},
        ),
        (_DESTROYED,),
    ),
    "node_tasks_state_check": Check(
        "node_tasks", ({"state": "unknown", "finished_at": NOW},), tuple(TASK_STATES.values())
    ),
    "task_completed_has_result": Check("node_tasks", ({**TASK_STATES["completed"], "result": None},)),
    "task_failed_has_code": Check("node_tasks", ({**TASK_STATES["failed"], "failure_code": None},)),
    "task_finished_has_time": Check(
        "node_tasks",
        (
            {"finished_at": NOW}, {"state": "dispatched", "finished_at": NOW},
            *({**TASK_STATES[state], "finished_at": None} for state in ("completed", "failed", "expired", "superseded")),
        ),
    ),
    "task_for_one": Check(
        "node_tasks", ({"orphan_id": OTHER},), ({}, {"orphan_id": OTHER, "allocation_id": None}, {"allocation_id": None})
    ),
    "free_mask_within_node": Check(
        "nodes", ({"free_mask": -1}, {"free_mask": 256}), ({"free_mask": 0}, {"free_mask": 255})
    ),
    "half_of_slots": Check(
        "nodes",
        ({"half_slots": 0}, {"slot_count": 0, "half_slots": 1, "free_mask": 0}),
        ({"slot_count": 0, "half_slots": 0, "free_mask": 0},),
    ),
    "half_within_node": Check("nodes", ({"half_slots": 9},), ({"half_slots": 8},)),
    "inventory_has_time": Check(
        "nodes", ({"inventory": "[]"}, {"inventory_after": NOW}), ({"inventory": "[]", "inventory_after": NOW},)
    ),
    "node_name_check": Check("nodes", _NAMES, ({"name": "a"}, {"name": "x" * 63}, {"name": "a.b-9"})),
    "node_slots_check": Check(
        "nodes",
        ({"slot_count": 63, "free_mask": 0}, {"half_slots": -1}),
        ({"slot_count": 62}, {"slot_count": 0, "half_slots": 0, "free_mask": 0},
         {"slot_count": 1, "half_slots": 1, "free_mask": 1}, {"half_slots": 1}),
    ),
    "node_state_check": one_of("nodes", "state", "registered", "active", "cordoned", "draining", "retired"),
    "notification_subscriptions_name_check": length("notification_subscriptions", "name", 1, 64),
    "notification_subscriptions_version_check": least("notification_subscriptions", "version", 0),
    "notification_subscriptions_versions_max_check": least("notification_subscriptions", "versions_max", 1),
    "event_type_check": length("outbox", "event_type", 1, 100),
    "event_reference_check": both(
        length("outbox", "operation_key", 0, 255), length("outbox", "request_id", 0, 255)
    ),
    "event_subject_check": length("outbox", "subject", 0, 200),
    "payload_bounded": Check("outbox", ({"payload": f'"{"x" * 262143}"'},), ({"payload": f'"{"x" * 262142}"'},)),
    "pools_shape_check": one_of("pools", "shape", "baremetal", "gpu_slice"),
    "regions_name_check": Check("regions", (*_NAMES, {"name": "a.b"}), ({"name": "a"}, {"name": "x" * 63})),
    "reservation_watermark_one_check": only_row("reservation_watermark"),
    "retention_policies_policy_id_check": length("retention_policies", "policy_id", 1, 100),
    "retention_policies_prevent_truncate_check": least("retention_policies", "prevent_truncate", 0),
    "retention_policies_versions_max_check": least("retention_policies", "versions_max", 1),
    "skus_allowed_counts_check": Check(
        "skus", ({"allowed_counts": []}, {"allowed_counts": [1] * 65}), ({"allowed_counts": [1] * 64},)
    ),
    "skus_gpu_model_check": length("skus", "gpu_model", 1, 100),
    "skus_name_check": length("skus", "name", 1, 100),
    "skus_price_micro_per_gpu_second_check": least("skus", "price_micro_per_gpu_second", 0),
    "skus_shape_check": one_of("skus", "shape", "baremetal", "gpu_slice"),
    "skus_state_check": one_of("skus", "state", "active", "retired"),
    "slots_numa_half_check": Check("slots", ({"numa_half": -1}, {"numa_half": 2}), ({"numa_half": 0}, {"numa_half": 1})),
    "slots_state_check": one_of("slots", "state", "in_service", "out_of_service"),
    "ssh_keys_name_check": length("ssh_keys", "name", 1, 100),
    "ssh_keys_public_key_check": length("ssh_keys", "public_key", 0, 16384),
    "tenants_name_check": length("tenants", "name", 1, 100),
    "tenants_state_check": one_of_states(
        "tenants", {"active": {}, "suspended": {"state": "suspended"}, "deleted": {"state": "deleted", "deleted_at": NOW}}
    ),
    "tenant_deleted_has_time": Check(
        "tenants", ({"state": "deleted"}, {"deleted_at": NOW}), ({"state": "deleted", "deleted_at": NOW},)
    ),
    "webhook_deliveries_error_check": length("webhook_deliveries", "error", 0, 200),
    "webhook_deliveries_response_excerpt_check": length("webhook_deliveries", "response_excerpt", 0, 1000),
    "webhook_deliveries_state_check": Check(
        "webhook_deliveries",
        ({**_ENDED_DELIVERY, "state": "unknown"},),
        ({}, _ENDED_DELIVERY, {**_ENDED_DELIVERY, "state": "failed"}),
    ),
    "webhook_delivery_waits": Check(
        "webhook_deliveries",
        (
            {"next_attempt_at": None}, {"ended_at": NOW}, {**_ENDED_DELIVERY, "ended_at": None},
            {**_ENDED_DELIVERY, "next_attempt_at": NOW},
        ),
    ),
    "webhook_disabled": Check(
        "webhooks",
        (
            {**_DISABLED, "disabled_reason": None}, {**_DISABLED, "disabled_at": None}, {**_DISABLED, "state": "enabled"},
            {"disabled_at": NOW}, {"state": "disabled"},
        ),
        (_DISABLED, {"state": "deleted"}),
    ),
    "webhooks_description_check": length("webhooks", "description", 0, 1000),
    "webhooks_disabled_reason_check": Check(
        "webhooks", ({**_DISABLED, "disabled_reason": "unknown"},),
        tuple(
            {**_DISABLED, "disabled_reason": reason}
            for reason in ("requested", "gone", "failing", "key_revoked", "key_expired")
        ),
    ),
    "webhooks_position_check": least("webhooks", "position", 0),
    "webhooks_signing_check": one_of("webhooks", "signing", "hmac", "ed25519"),
    "webhooks_state_check": Check("webhooks", ({"state": "unknown"},), ({}, {"state": "deleted"}, _DISABLED)),
    "webhooks_url_check": length("webhooks", "url", 1, 2000),
    "webhooks_versions_max_check": least("webhooks", "versions_max", 1),
}  # fmt: skip
