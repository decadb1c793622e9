"""One valid row for each table, for tests of the schema's own constraints.

`FIRST` holds the columns that an insert must name, and every column of a unique key. `SECOND` holds another valid value for
the columns of unique keys. A row that refers to another one refers to its `FIRST` row.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

Row = dict[str, Any]

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"
HASH, OTHER_HASH = b"\x01" * 32, b"\x02" * 32


def number(of: int) -> str:
    """A UUID, the same for the same number."""
    return f"00000000-0000-7000-8000-{of:012d}"


TENANT, NODE, ALLOCATION, RESERVATION, OTHER = (number(n) for n in range(1, 6))

FIRST: dict[str, Row] = {
    "archive_segments": {"sequence": 1, "manifest_sha256": "0" * 64, "destination": "/archive", "deleted": 0},
    "archived_allocations": {"allocation_id": ALLOCATION, "segment": 1},
    "archive_uses": {"kind": "webhook_deliveries"},
    "allocation_absences": {"allocation_id": ALLOCATION, "node_id": NODE, "first_missed": NOW, "last_missed": NOW},
    "allocation_timeline": {
        "id": 1, "allocation_id": ALLOCATION, "kind": "transition", "to_state": "requested", "row_version": 1,
        "actor_kind": "system",
    },
    "allocations": {
        "id": ALLOCATION, "tenant_id": TENANT, "sku": "h100.slice", "shape": "gpu_slice", "gpu_model": "H100", "gpus": 1,
        "region": "eu-1", "image": "ubuntu", "price_version": 1, "ssh_public_keys": [], "node_id": NODE, "claim_id": 1,
        "operation_key": "create-1", "operation_fingerprint": HASH, "correlation_id": OTHER,
        "waits_for": "worker", "waits_since": NOW, "waits_until": LATER,
    },
    "api_keys": {"id": number(10), "role": "admin", "name": "key", "prefix": "p", "secret_hash": HASH},
    "audit_anchor": {"one": True, "sequence": 0, "hash": HASH},
    "audit_batches": {"recorder": number(40), "batch": 1},
    "audit_chain": {
        "sequence": 1, "recorded_at": NOW, "id": 1, "at": NOW, "principal_kind": "admin", "principal_id": "1", "action": "a",
        "subject": "s", "code": "ok", "detail": "{}", "hash": HASH,
    },
    "audit_head": {"one": True, "sequence": 0, "recorded_at": NOW, "hash": HASH},
    "audit_pending": {"id": 1, "principal_kind": "admin", "principal_id": "1", "action": "a", "subject": "s"},
    "audit_streams": {"name": "nats", "sequence": 0},
    "balances": {"tenant_id": TENANT},
    "claims": {
        "id": 1, "node_id": NODE, "tenant_id": TENANT, "owner_kind": "allocation", "owner_id": ALLOCATION,
        "units": "{[1,3)}", "during": f"[{NOW},)", "fence": 1,
    },
    "consumer_positions": {"consumer": "consumer", "version": 0},
    "dead_letters": {
        "id": number(11), "consumer": "consumer", "version": 1, "reason": "refused", "detail": "", "excerpt": "", "tries": 1,
        "first_at": NOW,
    },
    "enrolment_tokens": {
        "id": number(12), "node_id": NODE, "token_hash": HASH, "created_by": OTHER, "expires_at": LATER,
    },
    "images": {"name": "ubuntu", "url": "file:///none", "sha256": "0" * 64, "shapes": ["gpu_slice"]},
    "kv_keys": {"namespace": OTHER, "key": b"k", "mark": 1, "event_id": OTHER},
    "kv_namespaces": {"id": OTHER},
    "ledger": {
        "id": 1, "tenant_id": TENANT, "kind": "usage", "amount_micro_units": 1, "allocation_id": ALLOCATION,
        "sku": "h100.slice", "gpus": 1, "price_version": 1, "price_micro_per_gpu_second": 1, "starts_at": NOW, "ends_at": LATER,
        "gpu_microseconds": 1, "version": 1,
    },
    "function_generation": {"one": True, "generation": 1, "oldest_process": "0048"},
    "live_rows": {"kind": "test", "stripe": 0, "number": 0},
    "tenant_rows": {"tenant_id": TENANT, "kind": "test", "stripe": 0, "number": 0},
    "log": {
        "version": 1, "prev_version": 0, "outbox_id": 1, "event_id": OTHER, "event_type": "t", "occurred_at": NOW,
        "correlation_id": OTHER, "subject": "s", "leader_id": "l", "payload": "{}",
    },
    "log_first": {"one": True, "version": 1},
    "log_head": {"one": True, "version": 0, "leader_id": "l", "partition_versions": 1, "epoch": "0a1b2c3d"},
    "log_stream": {"one": True, "first_version": 1},
    "log_tenants": {"tenant_id": TENANT, "version": 1},
    "log_truncation": {"one": True},
    "metering_intervals": {
        "allocation_id": ALLOCATION, "tenant_id": TENANT, "sku": "h100.slice", "gpus": 1, "price_version": 1,
        "price_micro_per_gpu_second": 1, "active_at": NOW, "opened_version": 1,
    },
    "fault_reports": {
        "id": number(33), "tenant_id": TENANT, "allocation_id": ALLOCATION, "node_id": NODE, "slots": [0], "symptom": "slow",
        "evidence": "e", "replace": False, "reported_by": "tenant:a",
    },
    "hardware_history": {
        "id": number(34), "serial": "1652", "kind": "gpu", "happened": "seen", "node_id": NODE, "slots": [0],
        "actor": "worker:discovery", "detail": "d",
    },
    "hardware_places": {"serial": "1652", "node_id": NODE, "kind": "gpu", "slots": [0], "positions": ["0000:0f:00.0"]},
    "hardware_repairs": {"id": number(35), "serial": "1652", "kind": "gpu", "reason": "r", "opened_by": "admin:a"},
    "maintenance_windows": {
        "id": number(19), "starts_at": NOW, "ends_at": LATER, "reason": "why", "waits_for": "start", "waits_since": NOW,
        "waits_until": NOW,
    },
    "maintenance_units": {"window_id": number(19), "node_id": NODE, "units": "{[1,3)}"},
    "deploy_systems": {
        "id": number(70), "node_id": NODE, "deploy_epoch": 1, "token_hash": HASH, "smbios_uuid": OTHER, "macs": ["m"],
        "tpm_required": False, "certificate_seconds": 60, "permitted_by": "admin:1", "expires_at": LATER, "ended_at": NOW,
        "ended_by": "superseded",
    },
    "deploy_tasks": {
        "id": number(71), "node_id": NODE, "deploy_epoch": 1, "type": "metal.inspect", "parameters": "{}", "seconds_max": 60,
        "requested_by": "admin:1", "waits_for": "worker", "waits_since": NOW, "waits_until": LATER,
    },
    "deploy_runs": {
        "id": number(72), "node_id": NODE, "site_id": number(70), "kind": "inspect", "medium": "{}", "requested_by": "admin:1",
        "bmc_task_id": number(70), "waits_for": "site_agent", "waits_since": NOW, "waits_until": LATER,
    },
    "node_machines": {"node_id": NODE, "smbios_uuid": OTHER, "macs": ["m"], "report": "{}", "inspected_at": NOW},
    "maintenance_tasks": {
        "window_id": number(19), "node_id": NODE, "kind": "health_probe", "seconds_max": 600, "begins_at": NOW,
        "waits_for": "units", "waits_since": NOW, "waits_until": LATER,
    },
    "awaited_inventories": {"node_id": NODE, "epoch": number(72)},
    "restore_replays": {
        "epoch": number(72), "kind": "release", "subject_id": ALLOCATION, "version": 8, "ended_at": NOW,
    },
    "restores": {"epoch": number(72), "written_by": "1-00000001", "leader_id": "1-00000002", "head_version": 7},
    "wipe_key_sets": {"sha256": HASH, "envelope": "{}"},
    "wipe_chains": {"node_id": NODE, "number": 1, "sha256": HASH},
    "wipe_certificates": {
        "allocation_id": ALLOCATION, "tenant_id": TENANT, "node_id": NODE, "number": 1, "sha256": HASH, "statement": "{}",
        "countersignature": "{}", "key_set_sha256": HASH,
    },
    "approvals": {
        "id": number(18), "action": "allocation.force_cleanup", "subject_id": ALLOCATION, "requested_by": OTHER,
        "requested_role": "admin", "requested_break_glass": False, "waits_until": LATER,
    },
    "attestation_challenges": {
        "node_id": NODE, "secret": HASH, "ek_public": b"ek", "ak_public": b"ak", "expires_at": LATER,
    },
    "node_topologies": {"node_id": NODE, "task_id": OTHER, "epoch": 1, "next_at": LATER},
    "node_health": {"node_id": NODE, "task_id": OTHER, "epoch": 1, "next_at": LATER},
    "node_health_reports": {
        "id": number(19), "node_id": NODE, "reported_at": NOW, "report": "{}", "faults": "[]",
    },
    "console_sessions": {
        "id": number(21), "allocation_id": ALLOCATION, "tenant_id": TENANT, "node_id": NODE, "mode": "attach",
        "opened_by": "tenant:a", "process_id": OTHER, "address": "a:1", "secret_sha256": "0" * 64, "seconds_max": 1.0,
        "waits_for": "worker", "waits_since": NOW, "waits_until": LATER,
    },
    "networks": {"id": number(60), "tenant_id": TENANT, "region": "eu-1", "vni": 1, "subnet": "10.64.0.0/24"},
    "network_vlans": {"region": "eu-1", "vlan": 100, "network_id": number(60)},
    "network_addresses": {"allocation_id": ALLOCATION, "network_id": number(60), "address": "10.64.0.2"},
    "published_ports": {"node_id": NODE, "port": 32_000, "allocation_id": ALLOCATION, "guest_port": 22},
    "node_burn_ins": {
        "id": number(20), "node_id": NODE, "slots": [0], "requested_by": "admin:a", "waits_for": "worker", "waits_since": NOW,
        "waits_until": LATER,
    },
    "node_drains": {
        "node_id": NODE, "begun_by": "admin:a", "deadline": LATER, "waits_for": "claims", "waits_since": NOW,
        "waits_until": LATER,
    },
    "node_gpu_resets": {
        "id": number(20), "node_id": NODE, "slots": [0], "gpus": ["0000:0f:00.0"], "requested_by": "admin:a",
        "waits_for": "worker", "waits_since": NOW, "waits_until": LATER,
    },
    "node_attestations": {
        "id": number(24), "node_id": NODE, "nonce": bytes(32), "requested_by": "admin:a", "waits_for": "worker",
        "waits_since": NOW, "waits_until": LATER,
    },
    "node_accepted_pcrs": {
        "node_id": NODE, "pcrs": ["00" * 32] * 8, "attestation_id": number(24), "accepted_by": "admin:a",
    },
    "firmware_lists": {
        "id": number(69), "vendor": "Contoso", "product": "Rack 9", "components": "[]", "changed_by": "admin:a",
    },
    "sites": {"id": number(70), "name": "site-1", "recovery_key": HASH},
    "site_agents": {"id": number(71), "site_id": number(70), "name": "a"},
    "site_agent_tokens": {
        "id": number(72), "agent_id": number(71), "token_hash": HASH, "created_by": TENANT, "expires_at": LATER,
    },
    "site_agent_certificates": {
        "serial": "01", "agent_id": number(71), "agent_epoch": 1, "key_sha256": HASH, "not_before": NOW, "not_after": LATER,
    },
    "site_agent_certificate_requests": {
        "id": number(73), "agent_id": number(71), "agent_epoch": 1, "predecessor": "01", "key_sha256": HASH, "csr_pem": "csr",
    },
    "node_bmcs": {
        "node_id": NODE, "site_id": number(70), "url": "https://bmc", "certificate_sha256": HASH, "username": "root",
        "generation": 1, "changed_by": "admin:a",
    },
    "bmc_credentials": {"node_id": NODE, "generation": 1, "recipient": number(70), "sealed": "x"},
    "site_segments": {
        "site_id": number(70), "provisioning_vlan": 100, "first_vlan": 1000, "last_vlan": 1999, "quarantine_seconds": 600,
        "changed_by": "admin:a",
    },
    "tenant_segments": {"site_id": number(70), "vlan": 1000, "tenant_id": TENANT, "fence": 1},
    "node_ports": {
        "node_id": NODE, "site_id": number(70), "switch": "leaf-1", "port": "Ethernet8", "mac": "52:54:00:00:00:01",
        "set_by": "admin:a",
    },
    "node_segments": {
        "node_id": NODE, "site_id": number(70), "place": "tenant", "vlan": 1000, "tenant_vlan": 1000,
    },
    "bmc_tasks": {
        "id": number(74), "node_id": NODE, "site_id": number(70), "kind": "look", "requested_by": "admin:a",
        "waits_for": "lease", "waits_since": NOW, "waits_until": LATER,
    },
    "node_tpms": {"node_id": NODE},
    "pool_attestations": {"pool_id": 1, "policy": "required"},
    "certificate_requests": {
        "id": number(17), "node_id": NODE, "node_epoch": 1, "predecessor": "01", "key_sha256": HASH, "csr_pem": "csr",
    },
    "node_certificates": {
        "serial": "01", "node_id": NODE, "node_epoch": 1, "key_sha256": HASH, "not_before": NOW, "not_after": LATER,
    },
    "slot_quarantines": {
        "id": number(17), "node_id": NODE, "slot_index": 0, "unit": 1000, "reason": "r", "quarantined_by": "admin:a",
    },
    "node_orphans": {
        "id": number(13), "node_id": NODE, "allocation_id": ALLOCATION, "slots": [0], "waits_for": "operator", "waits_since": NOW,
    },
    "node_tasks": {
        "id": number(14), "node_id": NODE, "node_epoch": 1, "type": "slice.vm_provision", "allocation_id": ALLOCATION,
        "fence": 1, "envelope": "{}", "not_before": NOW, "expires_at": LATER,
    },
    "nodes": {
        "id": NODE, "name": "node-1", "pool_id": 1, "region": "eu-1", "gpu_model": "H100", "shape": "gpu_slice",
        "slot_count": 8, "half_slots": 4, "unit_base": 1000, "free_mask": 255, "fit_class": 260,
    },
    "notification_subscriptions": {
        "scope": TENANT, "name": "feed", "version": 0, "versions_max": 1, "kept_until": LATER,
    },
    "operations": {"scope": TENANT, "key": "key-1", "fingerprint": HASH, "retire_after": LATER},
    "outbox": {"id": 1, "event_type": "t", "correlation_id": OTHER, "subject": "s", "payload": "{}"},
    "pools": {"id": 1, "region": "eu-1", "gpu_model": "H100", "shape": "gpu_slice"},
    "regions": {"name": "eu-1", "display_name": "Europe"},
    "reservation_watermark": {"one": True},
    "reservations": {
        "id": RESERVATION, "position": 1, "tenant_id": TENANT, "holder_id": "holder", "resources": ["seat-0"], "gpus_held": 0,
        "starts_at": NOW, "hold_until": LATER, "expires_at": LATER, "operation_key": "hold-1", "operation_fingerprint": HASH,
        "correlation_id": OTHER, "held_at": NOW, "held_event": OTHER, "waits_for": "confirm", "waits_since": NOW,
        "waits_until": LATER,
    },
    "resources": {"id": "seat-0", "unit": 1},
    "retention_policies": {"scope": TENANT, "policy_id": "policy", "prevent_truncate": 0},
    "sku_prices": {"sku": "h100.slice", "price_version": 1, "price_micro_per_gpu_second": 1},
    "skus": {
        "name": "h100.slice", "shape": "gpu_slice", "gpu_model": "H100", "allowed_counts": [1], "default_image": "ubuntu",
    },
    "slots": {"unit": 1000, "node_id": NODE, "slot_index": 0, "numa_half": 0},
    "ssh_keys": {"id": number(15), "tenant_id": TENANT, "name": "key", "public_key": "k", "fingerprint": "f"},
    "tenant_invitations": {
        "id": number(16), "tenant_id": TENANT, "role": "viewer", "token_hash": b"\x01" * 32, "created_by": "admin",
        "expires_at": LATER,
    },
    "tenant_members": {"id": number(17), "tenant_id": TENANT, "subject": "user", "role": "viewer", "invited_by": "admin"},
    "tenant_quotas": {"tenant_id": TENANT},
    "sql_functions": {"name": "f", "arguments": "", "sha256": "0" * 64, "generation": 1},
    "tenants": {"id": TENANT, "name": "tenant"},
    "webhook_deliveries": {
        "webhook_id": number(16), "number": 1, "event_id": OTHER, "event_type": "t", "next_attempt_at": NOW,
    },
    "webhooks": {
        "id": number(16), "tenant_id": TENANT, "url": "https://receiver.test", "signing": "hmac", "keys": "[]", "position": 0,
        "versions_max": 1,
    },
}  # fmt: skip

SECOND: dict[str, Row] = {
    "allocation_timeline": {"id": 2, "allocation_id": OTHER, "row_version": 2},
    "allocations": {"id": OTHER, "tenant_id": OTHER, "operation_key": "create-2"},
    "api_keys": {"id": OTHER, "secret_hash": OTHER_HASH},
    "fault_reports": {"id": OTHER, "tenant_id": OTHER},
    "hardware_history": {"id": OTHER},
    "hardware_places": {"serial": "1653", "node_id": OTHER},
    "hardware_repairs": {"id": OTHER, "serial": "1653"},
    "maintenance_windows": {"id": OTHER},
    "maintenance_units": {"window_id": OTHER, "node_id": OTHER},
    "deploy_systems": {"id": OTHER, "node_id": OTHER, "deploy_epoch": 2, "token_hash": OTHER_HASH},
    "deploy_tasks": {"id": OTHER, "node_id": OTHER},
    "deploy_runs": {"id": OTHER, "node_id": OTHER},
    "node_machines": {"node_id": OTHER},
    "maintenance_tasks": {"window_id": OTHER, "node_id": OTHER},
    "awaited_inventories": {"node_id": OTHER},
    "restore_replays": {"subject_id": OTHER},
    "restores": {"epoch": OTHER},
    "wipe_certificates": {"allocation_id": OTHER, "node_id": OTHER, "number": 2, "previous_sha256": OTHER_HASH},
    "approvals": {"id": OTHER, "action": "api_key.revoke", "subject_id": OTHER},
    "certificate_requests": {"id": OTHER, "node_id": OTHER, "node_epoch": 2, "predecessor": "02"},
    "attestation_challenges": {"node_id": OTHER},
    "node_health_reports": {"id": OTHER},
    "networks": {"id": OTHER, "tenant_id": OTHER, "region": "us-1", "vni": 2, "subnet": "10.64.1.0/24"},
    "network_vlans": {"region": "us-1", "vlan": 101, "network_id": OTHER},
    "network_addresses": {"allocation_id": OTHER, "network_id": OTHER, "address": "10.64.0.3"},
    "published_ports": {"node_id": OTHER, "port": 32_001, "allocation_id": OTHER, "guest_port": 23},
    "node_burn_ins": {"id": OTHER, "node_id": OTHER},
    "console_sessions": {"id": OTHER, "allocation_id": OTHER},
    "node_drains": {"node_id": OTHER},
    "node_gpu_resets": {"id": OTHER, "node_id": OTHER},
    "node_attestations": {"id": OTHER, "node_id": OTHER},
    "node_accepted_pcrs": {"node_id": OTHER},
    "firmware_lists": {"id": OTHER, "vendor": "Fabrikam", "product": "Rack 10"},
    "sites": {"id": OTHER, "name": "site-2"},
    "site_agents": {"id": OTHER, "site_id": OTHER, "name": "b"},
    "site_agent_tokens": {"id": OTHER, "token_hash": OTHER_HASH},
    "site_agent_certificates": {"serial": "02"},
    "site_agent_certificate_requests": {"id": OTHER, "agent_id": OTHER, "agent_epoch": 2, "predecessor": "02"},
    "node_bmcs": {"node_id": OTHER},
    "bmc_credentials": {"node_id": OTHER, "generation": 2, "recipient": OTHER},
    "site_segments": {"site_id": OTHER},
    "tenant_segments": {"site_id": OTHER, "vlan": 1001, "tenant_id": OTHER},
    "node_ports": {"site_id": OTHER, "switch": "leaf-2", "port": "Ethernet9", "mac": "52:54:00:00:00:02"},
    "node_segments": {"node_id": OTHER},
    "bmc_tasks": {"id": OTHER, "node_id": OTHER},
    "node_tpms": {"node_id": OTHER},
    "pool_attestations": {"pool_id": 2},
    "dead_letters": {"id": OTHER, "consumer": "another", "version": 2},
    "enrolment_tokens": {"id": OTHER, "token_hash": OTHER_HASH},
    "kv_keys": {"namespace": TENANT, "key": b"l"},
    "ledger": {"id": 2, "allocation_id": OTHER},
    "live_rows": {"kind": "another", "stripe": 1},
    "tenant_rows": {"tenant_id": OTHER, "kind": "another", "stripe": 1},
    "slot_quarantines": {"id": OTHER, "unit": 1001},
    "node_orphans": {"id": OTHER, "node_id": OTHER, "allocation_id": OTHER},
    "node_tasks": {"id": OTHER, "allocation_id": OTHER},
    "nodes": {"id": OTHER, "name": "node-2", "unit_base": 2000},
    "notification_subscriptions": {"scope": OTHER, "name": "another"},
    "operations": {"scope": OTHER, "key": "key-2"},
    "pools": {"id": 2, "region": "us-1", "gpu_model": "B200", "shape": "baremetal"},
    "reservations": {"id": OTHER, "position": 2, "tenant_id": OTHER, "operation_key": "hold-2"},
    "resources": {"id": "seat-1", "unit": 2},
    "retention_policies": {"scope": OTHER, "policy_id": "another"},
    "sku_prices": {"sku": "another", "price_version": 2},
    "slots": {"unit": 1001, "node_id": OTHER, "slot_index": 1},
    "ssh_keys": {"id": OTHER, "tenant_id": OTHER, "name": "another", "fingerprint": "g"},
    "tenant_invitations": {"id": OTHER, "token_hash": b"\x02" * 32},
    "tenant_members": {"id": OTHER},
    "tenants": {"id": OTHER, "name": "another"},
    "webhook_deliveries": {"webhook_id": OTHER, "number": 2},
}


def insert(connection: psycopg.Connection[Any], table: str, **changes: Any) -> int:
    """Insert the table's first row with `changes`; how many rows were inserted."""
    row = {**FIRST[table], **changes}
    return connection.execute(
        sql.SQL("insert into {} ({}) overriding system value values ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(sql.Placeholder() * len(row)),
        ),
        list(row.values()),
    ).rowcount


def ignore_triggers(connection: psycopg.Connection[Any]) -> None:
    """Run neither triggers nor foreign keys in this session; CHECK, UNIQUE and EXCLUDE stay in force."""
    connection.execute("set session_replication_role = replica")


def heed_triggers(connection: psycopg.Connection[Any]) -> None:
    """Run triggers and foreign keys again."""
    connection.execute("set session_replication_role = origin")


def put(schema: psycopg.Connection[Any], table: str, **changes: Any) -> None:
    """Insert a row past all triggers; later statements run them."""
    ignore_triggers(schema)
    insert(schema, table, **changes)
    heed_triggers(schema)


def refusal(
    schema: psycopg.Connection[Any], statement: str, values: Row | None = None
) -> tuple[str | None, str | None] | None:
    """SQLSTATE and constraint (or table) that the statement is refused with; None if it passes. Its effect is undone."""
    try:
        with schema.transaction(force_rollback=True):
            schema.execute(statement.encode(), values)
    except psycopg.Error as refused:
        return refused.sqlstate, refused.diag.constraint_name or refused.diag.table_name
    return None


def update_to(table: str, row: Row, *, row_version: int = 2) -> tuple[str, Row]:
    """The statement that takes the table's rows to another state, with its values."""
    values = {**row, "row_version": row_version}
    return f"update {table} set " + ", ".join(f"{column} = %({column})s" for column in values), values


def put_tenants(schema: psycopg.Connection[Any]) -> None:
    """Three tenants, without their balances."""
    for tenant in (TENANT, OTHER, number(20)):
        put(schema, "tenants", id=tenant, name=tenant)
