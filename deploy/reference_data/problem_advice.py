"""What the table of problem codes says of each code: where it is decided, and what its reader can do."""

from __future__ import annotations

WAIT = "retry after `Retry-After`"
FIX = "correct the request"
SOCKET = "open a new socket"
OPERATOR = "ask the operator for a higher bound"
ADVICE: dict[str, tuple[str, str]] = {
    "malformed": ("orchestrator/http/problem_documents.py, orchestrator/http/operation_keys.py", FIX),
    "invalid_cursor": ("orchestrator/http/paging.py", "start the list again without `cursor`"),
    "message_refused": ("orchestrator/notifications/messages.py", f"correct the message; {SOCKET}"),
    "range_invalid": ("orchestrator/keyvalue/commit_endpoints.py, orchestrator/billing/queries.py", FIX),
    "version_in_future": ("orchestrator/log/feed_endpoints.py, kv_commit", "use a version that the API has returned"),
    "version_missing": (
        "orchestrator/keyvalue/commit_endpoints.py",
        "send `read_version`, or a version for each precondition",
    ),
    "fault_reports_open": (
        "orchestrator/allocations/rules.py",
        "release the allocation; its reports close then",
    ),
    "replacement_in_progress": (
        "orchestrator/allocations/rules.py",
        "wait for `allocation.replaced` or `allocation.replacement_failed`, or release the allocation",
    ),
    "too_many_fault_reports": (
        "orchestrator/allocations/commands/faults.py",
        "retry later; the operator's bound is `BERTH_FAULT_REPORTS_PER_DAY_MAX`",
    ),
    "verb_in_progress": (
        "orchestrator/allocations/rules.py",
        "wait until `guest.verb` is null, then send the request again with a new key",
    ),
    "tenant_not_active": ("orchestrator/http/oidc/bearer_tokens.py", "ask the operator"),
    "console_busy": (
        "orchestrator/consoles/commands.py",
        "end the other session, or retry when it has ended",
    ),
    "console_unsupported": (
        "orchestrator/consoles/commands.py",
        "upgrade the node's agent",
    ),
    "console_not_set_up": (
        "orchestrator/consoles/commands.py",
        "the operator pins the host key of the BMC's SSH server: `berth node bmc set ... --console-host-key`",
    ),
    "console_log_absent": (
        "orchestrator/consoles/commands.py",
        "attach: `berth alloc console --attach`",
    ),
    "console_unavailable": (
        "orchestrator/consoles/hub.py",
        "retry later; an operator configures `BERTH_CONSOLE_PORT`, and agents must reach `BERTH_CONSOLE_ADDRESS`",
    ),
    "too_many_consoles": (
        "orchestrator/consoles/commands.py",
        "end a session; the bounds are `BERTH_CONSOLE_TENANT_SESSIONS_MAX` and `BERTH_CONSOLE_SESSIONS_MAX`",
    ),
    "burn_in_required": (
        "orchestrator/nodes/commands/quarantines.py",
        "run `berth node burn-in NODE --slot N` and return the slot after it has passed, or return it with `without_burn_in`",
    ),
    "sealing_outdated": ("orchestrator/sites/commands/bmcs.py", "seal it again, to the recipients that it names"),
    "site_in_use": ("orchestrator/sites/commands/sites.py", "revoke the agents and remove the BMCs of the site first"),
    "attestation_unavailable": (
        "orchestrator/sites/commands/attestations.py",
        "prove a TPM by enrolling or inspecting the node with it, or upgrade the agent",
    ),
    "gpu_reset_unsupported": ("orchestrator/nodes/commands/gpu_resets.py", "upgrade the node's agent"),
    "gpus_in_service": (
        "orchestrator/nodes/commands/gpu_resets.py",
        "take the slots that it names out of service, and wait for the release of allocations",
    ),
    "burn_in_unsupported": ("orchestrator/nodes/commands/burn_ins.py", "upgrade the agent, or use `without_burn_in`"),
    "deploy_refused": (
        "orchestrator/nodes/commands/deploy_enrolment.py",
        "by `reason`: permit the deploy system again and boot the new medium; for another machine, find out which one this is",
    ),
    "deploy_system_ended": (
        "orchestrator/nodes/deploy_systems/queries.py",
        "power the machine off; permit the deploy system again if it is needed",
    ),
    "no_deploy_system": (
        "orchestrator/nodes/commands/deploy_systems.py",
        "run `berth node deploy-system` and boot its medium",
    ),
    "machine_unknown": (
        "orchestrator/nodes/commands/deploy_systems.py",
        "give the SMBIOS UUID that the BMC reports",
    ),
    "machine_not_adoptable": (
        "orchestrator/sites/adopting/rules.py",
        "by `reason`: have its BMC describe it again, or state what the machine is",
    ),
    "machine_not_wipeable": (
        "orchestrator/nodes/deploy_systems/wipe_orders.py",
        "by `reason`: inspect the machine, or replace the disk or controller that it names and inspect it again",
    ),
    "deploy_not_configured": (
        "orchestrator/nodes/deploy_systems/endpoints.py",
        "set the variables that it names for the public API",
    ),
    "attestation_required": (
        "orchestrator/nodes/store/attestation.py",
        "start the agent with BERTH_TPM_TCTI; after a change of the machine, have an operator forget the TPM",
    ),
    "attestation_refused": (
        "orchestrator/nodes/attestation/, orchestrator/nodes/store/attestation.py",
        "by `reason`: ask for another challenge; for another TPM or key, find out what machine this is, then enrol it again",
    ),
    "identity_conflict": (
        "orchestrator/nodes/commands/certificates.py, orchestrator/nodes/store/certificates.py",
        "revoke the node's certificates, find out how its key was copied, enrol it again",
    ),
    "certificate_pending": (
        "orchestrator/nodes/certificate_waits.py",
        "send the same request with the same key after `Retry-After`; the operator starts the issuer",
    ),
    "too_many_certificates": ("orchestrator/nodes/commands/certificates.py", "renew when a certificate has ended"),
    "token_expired": ("orchestrator/http/oidc/tokens.py", "get a new token; the same idempotency key may be used"),
    "token_invalid": (
        "orchestrator/http/oidc/tokens.py, orchestrator/http/oidc/token_principals.py",
        "get a token of this issuer and audience",
    ),
    "token_not_yet_valid": ("orchestrator/http/oidc/tokens.py", "check the issuer's clock"),
    "unauthenticated": (
        "orchestrator/http/authentication.py, orchestrator/nodes/certificates.py",
        "send a valid API key, token or certificate",
    ),
    "forbidden": (
        (
            "orchestrator/http/authentication.py, orchestrator/http/tenant_scope.py; tenant not active: judge_creates,"
            " refuse_window, succeed_claim"
        ),
        "use a key of the right role; suspended or deleted: ask the operator",
    ),
    "role_required": ("orchestrator/tenants/required_roles.py", "use a key or token with one of `roles_required`"),
    "already_member": (
        "orchestrator/tenants/store/members.py",
        "have an admin of the other tenant remove the member first",
    ),
    "invitation_invalid": (
        "orchestrator/tenants/store/members.py",
        "ask an admin of the tenant for another invitation",
    ),
    "scope_required": (
        "orchestrator/tenants/required_roles.py",
        "use a key with one of `scopes_required`, or without scopes",
    ),
    "scopes_exceeded": ("orchestrator/tenants/scopes.py", "name fewer `scopes`, or use a key without scopes"),
    "second_operator_required": (
        "orchestrator/approvals/rules.py",
        "have another operator decide; the requester may withdraw the request",
    ),
    "not_found": ("queries and stores of each noun", "check the id and the tenant"),
    "reservation_not_found": ("orchestrator/reservations/store/rows.py", "check the id and the tenant"),
    "resource_not_found": (
        "select_named; orchestrator/reservations/store/resources.py",
        "take ids from `GET /api/v1/resources`",
    ),
    "method_not_allowed": ("orchestrator/http/problem_documents.py", FIX),
    "request_timeout": ("orchestrator/edge/edge.py", "send the body faster; same key"),
    "already_exists": ("stores of tenants, nodes, SSH keys and resources", "use the existing object, or another name"),
    "balance_depleted": (
        "judge_creates, refuse_window, turn_over_claim, succeed_claim",
        "top up the balance, then send a new key",
    ),
    "balance_insufficient": ("orchestrator/billing/commands.py", "top up first"),
    "balance_out_of_bounds": ("orchestrator/billing/store/payments.py", "a smaller amount"),
    "holder_mismatch": (
        "confirm_reservations, cancel_once, consume_reservation",
        "send the `holder_id` of the hold",
    ),
    "invalid_state": (
        "commands of each noun, after their locks; confirm_reservations, cancel_once, consume_reservation",
        "read the object: `state` allows something else, or nothing more",
    ),
    "image_in_use": (
        "orchestrator/catalogue/image_store.py",
        "retire it, end what `users` counts, then send a new key",
    ),
    "guest_size_fixed": ("orchestrator/catalogue/store.py", "leave the size out, or make another SKU"),
    "guest_size_misfit": ("orchestrator/catalogue/guest_size_store.py", "state less, or retire the SKU or the node"),
    "guest_size_unsupported": ("orchestrator/catalogue/guest_size_store.py", "upgrade the node's agent"),
    "wipe_certificate_missing": (
        "orchestrator/wipes/refusals.py",
        "wait until the allocation is released; of one that is, ask the operator, whose record says how it was cleaned up",
    ),
    "topology_changed": (
        "orchestrator/nodes/refusals.py",
        "read the topology again; approve `digest` if it is what the node should be, with a new key",
    ),
    "topology_misfit": (
        "orchestrator/nodes/refusals.py",
        "repair the node, or register it again with as many slots as it has GPUs",
    ),
    "maintenance_conflict": (
        "orchestrator/maintenance/rules.py",
        "end or move what `conflicts` names, choose another time, or let the window notify allocations",
    ),
    "maintenance_task_invalid": ("orchestrator/maintenance/window_tasks.py", FIX),
    "maintenance_task_unsupported": ("orchestrator/maintenance/window_tasks.py", "leave out the nodes in `nodes`"),
    "maintenance_window_invalid": (
        "orchestrator/maintenance/rules.py",
        "choose a time within 366 days, of at most 366 days, that is not over",
    ),
    "approval_pending": (
        "orchestrator/approvals/store.py",
        "have `approval_id` approved or rejected, or withdraw it",
    ),
    "tenant_deleted": (
        "orchestrator/tenants/store/tenants.py, orchestrator/operations/store/tenancy.py",
        "create another tenant, with another name",
    ),
    "last_admin_key": (
        "orchestrator/tenants/store/key_changes.py",
        "create another `admin` key first, or ask the operator: operators may revoke the last one",
    ),
    "tenant_in_use": (
        "delete_tenant",
        "end what `users` counts: release allocations, cancel reservations, wait for cleanups; then send a new key",
    ),
    "driver_refused": (
        "orchestrator/nodes/commands/heartbeat.py",
        "start the agent with the driver of the node's pool",
    ),
    "node_in_use": ("orchestrator/nodes/store/open_claims.py", "end each of `claims` by its `next_step`"),
    "operation_fenced": ("orchestrator/operations/store/operations.py", "send the request again with a new key"),
    "operation_in_progress": (
        "orchestrator/operations/store/operations.py, orchestrator/edge/gate.py",
        "retry with the same key after `Retry-After`",
    ),
    "quota_exceeded": (
        (
            "GPUs: place_together (a create), refuse_quota (a hold); rows: require_tenant_room; keys and values: kv_commit;"
            " others: orchestrator/operations/store/tenancy.py"
        ),
        (
            "`quota` names it; make room as `detail` says, or ask the operator for more "
            "(`PUT /api/v1/admin/tenants/{id}/quota`); then send a new key"
        ),
    ),
    "resource_busy": (
        "judge_rivals; orchestrator/reservations/store/holding.py",
        "another window or other resources, with a new key",
    ),
    "resource_not_allocatable": (
        "orchestrator/reservations/commands/consume.py",
        "consume a reservation of GPUs or slots",
    ),
    "resource_out_of_service": (
        "select_named; orchestrator/reservations/commands/consume.py",
        "other resources, or wait until it is in service; new key",
    ),
    "retention_out_of_bounds": ("orchestrator/log/store/retention.py", "a version of at least `prevent_truncate_min`"),
    "secret_not_shown_again": ("orchestrator/http/writes.py", "create another secret and revoke the first"),
    "sku_unavailable": (
        "orchestrator/placement/admission.py, orchestrator/placement/refusals.py; no room: place_together, choose_by_mask",
        "by `reason`, see below; then send a new key",
    ),
    "version_not_reached": ("orchestrator/log/head.py", WAIT),
    "webhook_busy": ("orchestrator/webhooks/store/deliveries.py", "wait until deliveries are done"),
    "webhook_keys_full": ("orchestrator/webhooks/store/webhooks.py", "wait until an overlap is over"),
    "archived": (
        "orchestrator/allocations/store/missing.py",
        "ask the operator: `berth archive show` reads it; its usage and charges are still in the API",
    ),
    "audit_truncated": (
        "orchestrator/audit/list_store.py",
        "list from `first_sequence` on; the operator's archive has what was before",
    ),
    "log_truncated": (
        "orchestrator/log/feed_endpoints.py, orchestrator/notifications/store.py",
        "read the state from the API, then continue from `first_version`",
    ),
    "reservation_retired": ("orchestrator/reservations/store/rows.py", "nothing: it ended long ago"),
    "concurrency_limited": (
        "orchestrator/http/principal_limits.py, orchestrator/edge/batching.py",
        "send fewer at once",
    ),
    "too_many_failures": (
        "orchestrator/http/failed_attempts.py",
        "wait as `Retry-After` says; send a live key",
    ),
    "rate_limited": ("orchestrator/http/rate_limits.py", "send fewer; wait for `Retry-After`"),
    "head_too_large": ("orchestrator/edge/connections.py", "fewer and shorter header fields, a shorter path"),
    "too_large": (
        "orchestrator/edge/edge.py, orchestrator/edge/body_values.py, orchestrator/keyvalue/commit_endpoints.py",
        "split the request",
    ),
    "image_unavailable": (
        "orchestrator/placement/admission.py",
        "take an image of `GET /api/v1/images` that fits; new key",
    ),
    "invalid": ("schemas of each noun, orchestrator/http/problem_documents.py", "correct the fields of `errors`"),
    "operation_conflict": ("orchestrator/operations/store/operations.py", "send the changed request with a new key"),
    "slot_overflow": (
        "orchestrator/reservations/hold_requests.py, orchestrator/database/transactions.py",
        "an earlier end: no deadline or retirement may be after the year 9999 (AllocDB's slots of time)",
    ),
    "ssh_key_not_found": (
        "judge_creates, turn_over_claim; orchestrator/tenants/store/ssh_keys.py",
        "take ids from `GET /api/v1/ssh-keys`; new key",
    ),
    "ttl_out_of_range": ("orchestrator/reservations/hold_requests.py", "1 to `ttl_seconds_max`; new key"),
    "webhook_url_refused": ("orchestrator/webhooks/endpoints.py", "an https URL with a public address"),
    "window_invalid": ("refuse_window, judge_creates; orchestrator/reservations/rules.py", "another window; new key"),
    "upgrade_required": ("orchestrator/notifications/endpoints.py", "open a WebSocket"),
    "too_many_messages": ("orchestrator/notifications/sockets.py", f"{SOCKET} and send fewer messages"),
    "internal": ("any process; it is logged with the request id", "repeat with the same key; report it"),
    "database_unavailable": ("orchestrator/database/transactions.py", WAIT),
    "restore_in_progress": ("orchestrator/database/transactions.py", WAIT),
    "expiration_index_full": (
        "room_left; orchestrator/reservations/store/holding.py",
        f"{WAIT}: `BERTH_HOLDS_MAX` holds wait for their deadline (AllocDB's expiration index)",
    ),
    "issuer_unavailable": ("orchestrator/http/oidc/issuer_keys.py", WAIT),
    "leader_unaccepted": (
        "require_accepted_leader; orchestrator/log/feed_endpoints.py",
        "an operator runs `berth events rebuild --accept-timeline`",
    ),
    "maintenance_table_full": (
        "orchestrator/maintenance/store.py",
        "cancel or end windows, or raise `BERTH_MAINTENANCE_WINDOWS_MAX`",
    ),
    "approval_table_full": (
        "orchestrator/approvals/store.py",
        "approve, reject or withdraw waiting requests; retry later",
    ),
    "operation_table_full": ("count_operations", WAIT),
    "outcome_unknown": (
        "orchestrator/database/transactions.py",
        "repeat with the same key, or read `GET /api/v1/operations/{key}`",
    ),
    "overloaded": (
        "orchestrator/edge/edge.py, orchestrator/edge/batching.py, orchestrator/database/transactions.py",
        WAIT,
    ),
    "reservation_table_full": (
        "room_left; orchestrator/reservations/store/holding.py",
        f"{WAIT}; {OPERATOR} (`BERTH_RESERVATIONS_MAX`)",
    ),
    "resource_table_full": (
        "room_left; orchestrator/database/table_bounds.py",
        f"{WAIT}; {OPERATOR} (`BERTH_RESOURCES_MAX`)",
    ),
    "webhooks_unavailable": (
        "orchestrator/webhooks/endpoints.py",
        "the operator sets `BERTH_WEBHOOK_KEY_FILE`",
    ),
}
"""By code: modules and SQL functions that decide it, and what the client does."""
