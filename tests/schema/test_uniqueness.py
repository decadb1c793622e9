"""Each unique index refuses a second row with its columns, by its own name, and a row that differs in one column passes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.schema.catalog import exclusion_constraints, unique_indexes
from tests.support.rows import HASH, LATER, NOW, OTHER, OTHER_HASH, SECOND, TENANT, Row, insert
from tests.support.states_as_rows import ORPHAN_STATES, TASK_STATES

UNIQUE: dict[str, tuple[str, tuple[str, ...]]] = {
    "allocation_timeline_pkey": ("allocation_timeline", ("allocation_id", "id")),
    "timeline_transition_once": ("allocation_timeline", ("allocation_id", "row_version")),
    "allocations_pkey": ("allocations", ("id",)),
    "creation_runs_once": ("allocations", ("tenant_id", "operation_key")),
    "api_key_hash_unique": ("api_keys", ("secret_hash",)),
    "approvals_pkey": ("approvals", ("id",)),
    "one_pending_approval": ("approvals", ("action", "subject_id")),
    "api_keys_pkey": ("api_keys", ("id",)),
    "maintenance_windows_pkey": ("maintenance_windows", ("id",)),
    "maintenance_tasks_pkey": ("maintenance_tasks", ("window_id", "node_id")),
    "one_maintenance_task": ("maintenance_tasks", ("node_id",)),
    "maintenance_units_pkey": ("maintenance_units", ("window_id", "node_id")),
    "wipe_certificates_pkey": ("wipe_certificates", ("allocation_id",)),
    "wipe_certificate_number": ("wipe_certificates", ("node_id", "number")),
    "attestation_challenges_pkey": ("attestation_challenges", ("node_id",)),
    "node_tpms_pkey": ("node_tpms", ("node_id",)),
    "pool_attestations_pkey": ("pool_attestations", ("pool_id",)),
    "certificate_requests_pkey": ("certificate_requests", ("id",)),
    "one_request_for_a_link": ("certificate_requests", ("node_id", "node_epoch", "predecessor")),
    "dead_letter_once": ("dead_letters", ("consumer", "version")),
    "dead_letters_pkey": ("dead_letters", ("id",)),
    "enrolment_token_unique": ("enrolment_tokens", ("token_hash",)),
    "enrolment_tokens_pkey": ("enrolment_tokens", ("id",)),
    "kv_key": ("kv_keys", ("namespace", "key")),
    "ledger_credit_once": ("ledger", ("allocation_id", "version")),
    "ledger_payment_once": ("ledger", ("actor_id", "operation_key")),
    "ledger_pkey": ("ledger", ("id",)),
    "ledger_usage_once": ("ledger", ("allocation_id",)),
    "live_rows_once": ("live_rows", ("kind", "stripe")),
    "fault_reports_pkey": ("fault_reports", ("id",)),
    "hardware_history_pkey": ("hardware_history", ("id",)),
    "hardware_places_pkey": ("hardware_places", ("serial", "node_id")),
    "hardware_repairs_pkey": ("hardware_repairs", ("id",)),
    "one_repair": ("hardware_repairs", ("serial",)),
    "slot_quarantines_pkey": ("slot_quarantines", ("id",)),
    "one_attached_console": ("console_sessions", ("allocation_id",)),
    "networks_pkey": ("networks", ("id",)),
    "network_of_tenant": ("networks", ("tenant_id", "region")),
    "network_vni_once": ("networks", ("vni",)),
    "network_vlan_once": ("network_vlans", ("region", "vlan")),
    "network_has_one_vlan": ("network_vlans", ("network_id",)),
    "network_addresses_pkey": ("network_addresses", ("allocation_id",)),
    "network_address_once": ("network_addresses", ("network_id", "address")),
    "network_name_once": ("network_addresses", ("network_id", "name")),
    "published_port_once": ("published_ports", ("node_id", "port")),
    "guest_port_once": ("published_ports", ("allocation_id", "guest_port")),
    "one_burn_in": ("node_burn_ins", ("node_id",)),
    "deploy_systems_pkey": ("deploy_systems", ("id",)),
    "deploy_epoch_unique": ("deploy_systems", ("node_id", "deploy_epoch")),
    "deploy_token_unique": ("deploy_systems", ("token_hash",)),
    "one_deploy_system": ("deploy_systems", ("node_id",)),
    "deploy_certificate_unique": ("deploy_systems", ("serial",)),
    "deploy_tasks_pkey": ("deploy_tasks", ("id",)),
    "one_deploy_task": ("deploy_tasks", ("node_id",)),
    "deploy_runs_pkey": ("deploy_runs", ("id",)),
    "one_deploy_run": ("deploy_runs", ("node_id",)),
    "node_machines_pkey": ("node_machines", ("node_id",)),
    "one_gpu_reset": ("node_gpu_resets", ("node_id",)),
    "one_attestation": ("node_attestations", ("node_id",)),
    "firmware_lists_pkey": ("firmware_lists", ("id",)),
    "one_firmware_list_of_model": ("firmware_lists", ("vendor", "product")),
    "site_name_unique": ("sites", ("name",)),
    "sites_pkey": ("sites", ("id",)),
    "site_agent_name_unique": ("site_agents", ("site_id", "name")),
    "site_agents_pkey": ("site_agents", ("id",)),
    "site_agent_token_unique": ("site_agent_tokens", ("token_hash",)),
    "site_agent_tokens_pkey": ("site_agent_tokens", ("id",)),
    "site_agent_certificates_pkey": ("site_agent_certificates", ("serial",)),
    "one_successor_of_agent": ("site_agent_certificates", ("predecessor",)),
    "site_agent_certificate_requests_pkey": ("site_agent_certificate_requests", ("id",)),
    "one_request_for_a_link_of_agent": ("site_agent_certificate_requests", ("agent_id", "agent_epoch", "predecessor")),
    "node_bmcs_pkey": ("node_bmcs", ("node_id",)),
    "bmc_credentials_pkey": ("bmc_credentials", ("node_id", "generation", "recipient")),
    "bmc_tasks_pkey": ("bmc_tasks", ("id",)),
    "one_bmc_task": ("bmc_tasks", ("node_id",)),
    "site_segments_pkey": ("site_segments", ("site_id",)),
    "tenant_segment_once": ("tenant_segments", ("site_id", "vlan")),
    "tenant_segment_of_site": ("tenant_segments", ("site_id", "tenant_id")),
    "switch_port_once": ("node_ports", ("site_id", "switch", "port")),
    "switch_port_of_mac": ("node_ports", ("site_id", "mac")),
    "node_segments_pkey": ("node_segments", ("node_id",)),
    "one_quarantine": ("slot_quarantines", ("unit",)),
    "node_orphans_pkey": ("node_orphans", ("id",)),
    "one_successor": ("node_certificates", ("predecessor",)),
    "one_orphan": ("node_orphans", ("node_id", "allocation_id")),
    "node_tasks_pkey": ("node_tasks", ("id",)),
    "one_live_task": ("node_tasks", ("allocation_id",)),
    "one_live_task_of_orphan": ("node_tasks", ("orphan_id",)),
    "one_live_task_of_deploy_system": ("node_tasks", ("node_id", "deploy_epoch")),
    "node_name_unique": ("nodes", ("name",)),
    "node_units_unique": ("nodes", ("unit_base",)),
    "nodes_pkey": ("nodes", ("id",)),
    "notification_subscription": ("notification_subscriptions", ("scope", "name")),
    "operation_runs_once": ("operations", ("scope", "key")),
    "pool_unique": ("pools", ("region", "gpu_model", "shape")),
    "pools_pkey": ("pools", ("id",)),
    "reservation_position_unique": ("reservations", ("position",)),
    "reservation_runs_once": ("reservations", ("tenant_id", "operation_key")),
    "reservations_pkey": ("reservations", ("id",)),
    "resource_unit_unique": ("resources", ("unit",)),
    "resources_pkey": ("resources", ("id",)),
    "retention_policy": ("retention_policies", ("scope", "policy_id")),
    "sku_prices_pkey": ("sku_prices", ("sku", "price_version")),
    "slot_unique": ("slots", ("node_id", "slot_index")),
    "slots_pkey": ("slots", ("unit",)),
    "ssh_key_fingerprint_unique": ("ssh_keys", ("tenant_id", "fingerprint")),
    "ssh_key_name_unique": ("ssh_keys", ("tenant_id", "name")),
    "ssh_keys_pkey": ("ssh_keys", ("id",)),
    "invitation_token_unique": ("tenant_invitations", ("token_hash",)),
    "tenant_members_pkey": ("tenant_members", ("id",)),
    "tenant_invitations_pkey": ("tenant_invitations", ("id",)),
    "tenant_rows_once": ("tenant_rows", ("tenant_id", "kind", "stripe")),
    "tenant_name_unique": ("tenants", ("name",)),
    "tenants_pkey": ("tenants", ("id",)),
    "webhook_deliveries_pkey": ("webhook_deliveries", ("webhook_id", "number")),
}
"""Table and columns of each unique index of a table with more than one, or with several columns."""

SINGLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "allocation_absences_pkey": ("allocation_absences", ("allocation_id",)),
    "archive_segments_pkey": ("archive_segments", ("sequence",)),
    "archive_uses_pkey": ("archive_uses", ("kind",)),
    "archived_allocations_pkey": ("archived_allocations", ("allocation_id",)),
    "audit_anchor_pkey": ("audit_anchor", ("one",)),
    "audit_batches_pkey": ("audit_batches", ("recorder",)),
    "audit_chain_pkey": ("audit_chain", ("sequence",)),
    "audit_head_pkey": ("audit_head", ("one",)),
    "audit_pending_pkey": ("audit_pending", ("id",)),
    "audit_streams_pkey": ("audit_streams", ("name",)),
    "balances_pkey": ("balances", ("tenant_id",)),
    "claims_pkey": ("claims", ("id",)),
    "consumer_positions_pkey": ("consumer_positions", ("consumer",)),
    "function_generation_pkey": ("function_generation", ("one",)),
    "images_pkey": ("images", ("name",)),
    "kv_namespaces_pkey": ("kv_namespaces", ("id",)),
    "log_version": ("log", ("version",)),
    "log_first_pkey": ("log_first", ("one",)),
    "log_head_pkey": ("log_head", ("one",)),
    "log_stream_pkey": ("log_stream", ("one",)),
    "log_tenants_pkey": ("log_tenants", ("tenant_id",)),
    "log_truncation_pkey": ("log_truncation", ("one",)),
    "metering_intervals_pkey": ("metering_intervals", ("allocation_id",)),
    "node_certificates_pkey": ("node_certificates", ("serial",)),
    "console_sessions_pkey": ("console_sessions", ("id",)),
    "node_burn_ins_pkey": ("node_burn_ins", ("id",)),
    "node_drains_pkey": ("node_drains", ("node_id",)),
    "node_attestations_pkey": ("node_attestations", ("id",)),
    "node_accepted_pcrs_pkey": ("node_accepted_pcrs", ("node_id",)),
    "node_gpu_resets_pkey": ("node_gpu_resets", ("id",)),
    "node_health_pkey": ("node_health", ("node_id",)),
    "node_health_reports_pkey": ("node_health_reports", ("id",)),
    "node_topologies_pkey": ("node_topologies", ("node_id",)),
    "outbox_pkey": ("outbox", ("id",)),
    "regions_pkey": ("regions", ("name",)),
    "awaited_inventories_pkey": ("awaited_inventories", ("node_id",)),
    "restore_replays_pkey": ("restore_replays", ("epoch", "kind", "subject_id")),
    "restores_pkey": ("restores", ("epoch",)),
    "one_open_restore": ("restores", ("expr",)),
    "reservation_watermark_pkey": ("reservation_watermark", ("one",)),
    "skus_pkey": ("skus", ("name",)),
    "sql_functions_pkey": ("sql_functions", ("name",)),
    "tenant_quotas_pkey": ("tenant_quotas", ("tenant_id",)),
    "webhooks_pkey": ("webhooks", ("id",)),
    "wipe_chains_pkey": ("wipe_chains", ("node_id",)),
    "wipe_key_sets_pkey": ("wipe_key_sets", ("sha256",)),
}
"""The primary keys of tables with no other unique index, and an index of an expression."""

ALL = UNIQUE | SINGLE

PAYMENT: Row = {
    **dict.fromkeys(
        ("allocation_id", "sku", "gpus", "price_version", "price_micro_per_gpu_second", "starts_at", "ends_at",
         "gpu_microseconds", "version"),
    ),
    "kind": "top_up", "actor_id": "1", "operation_key": "k",
}  # fmt: skip
RUNNING_TASK: Row = {"state": "running", "waits_for": "node", "task_id": OTHER, "begun_at": NOW}
ORPHANS_TASK: Row = {"allocation_id": None, "orphan_id": TENANT}
DEPLOY_TASK: Row = {"allocation_id": None, "deploy_epoch": 1}

DEPLOY_CERTIFICATE: Row = {
    "used_at": NOW, "key_sha256": HASH, "csr_pem": "csr", "serial": "01", "pem": "pem", "not_after": LATER,
    "authority_key_sha256": HASH,
}  # fmt: skip

# Partial indexes, or keys of rows that are not the table's first: the rows' common columns, and the second row's.
ROWS: dict[str, tuple[Row, Row]] = {
    "one_deploy_system": ({"ended_at": None, "ended_by": None}, SECOND["deploy_systems"]),
    "deploy_certificate_unique": (DEPLOY_CERTIFICATE, {**SECOND["deploy_systems"], "serial": "02"}),
    "one_successor": ({"predecessor": "00"}, {"serial": "02", "predecessor": "01"}),
    "one_successor_of_agent": ({"predecessor": "00"}, {"serial": "02", "predecessor": "01"}),
    "ledger_credit_once": ({"kind": "credit"}, {"id": 2, "allocation_id": OTHER, "version": 2}),
    "ledger_payment_once": (PAYMENT, {"id": 2, "actor_id": "2", "operation_key": "l"}),
    "one_maintenance_task": (RUNNING_TASK, {"window_id": OTHER, "node_id": OTHER}),
    "one_live_task_of_orphan": (ORPHANS_TASK, {"id": OTHER, "orphan_id": OTHER}),
    "one_live_task_of_deploy_system": (DEPLOY_TASK, {"id": OTHER, "node_id": OTHER, "deploy_epoch": 2}),
    "one_live_task": ({}, {"id": OTHER, "allocation_id": OTHER}),
    "network_name_once": ({"name": "web"}, {**SECOND["network_addresses"], "name": "db"}),
    "wipe_certificate_number": (
        {"number": 2, "previous_sha256": OTHER_HASH},
        {"allocation_id": OTHER, "node_id": OTHER, "number": 3},
    ),
}

_NOT_WAITING: Row = {"state": "expired", "ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}
_BURNED_IN: Row = {"ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None}
# Outside the predicate of a partial index: the changes to the first and to the second row, which then pass side by side.
OUTSIDE: dict[str, list[tuple[Row, Row]]] = {
    "one_open_restore": [({"closed_at": NOW}, {"epoch": OTHER}), ({}, {"epoch": OTHER, "closed_at": NOW})],
    "one_deploy_system": [({}, {"id": OTHER, "deploy_epoch": 2, "token_hash": OTHER_HASH})],
    "one_deploy_run": [({**_BURNED_IN, "outcome": "completed"}, {"id": OTHER})],
    "one_deploy_task": [(
        {"ended_at": NOW, "waits_for": None, "waits_since": None, "waits_until": None, "outcome": "failed", "failure": "w"},
        {"id": OTHER},
    )],
    "timeline_transition_once": [
        ({}, {"id": 2, "kind": "note", "to_state": None}), ({}, {"id": 2, "kind": "progress", "to_state": None}),
    ],
    "one_orphan": [(ORPHAN_STATES["destroyed"], {"id": OTHER})],
    "one_burn_in": [({**_BURNED_IN, "outcome": "failed"}, {"id": OTHER})],
    "one_attestation": [({**_BURNED_IN, "verdict": "failed", "code": "expired"}, {"id": OTHER})],
    "one_gpu_reset": [({**_BURNED_IN, "outcome": "failed"}, {"id": OTHER})],
    "one_bmc_task": [({**_BURNED_IN, "outcome": "completed"}, {"id": OTHER})],
    "one_maintenance_task": [({}, {"window_id": OTHER})],
    "one_quarantine": [({"returned_at": NOW, "returned_by": "b", "note": "n"}, {"id": OTHER})],
    "one_repair": [({"closed_at": NOW, "closed_by": "b", "result": "r"}, {"id": OTHER})],
    "one_pending_approval": [(_NOT_WAITING, {"id": OTHER})],
    "one_live_task": [(TASK_STATES[state], {"id": OTHER}) for state in ("completed", "failed", "expired", "superseded")],
    "one_live_task_of_orphan": [
        ({**ORPHANS_TASK, **TASK_STATES[state]}, {**ORPHANS_TASK, "id": OTHER})
        for state in ("completed", "failed", "expired", "superseded")
    ],
    "one_live_task_of_deploy_system": [
        *(
            ({**DEPLOY_TASK, **TASK_STATES[state]}, {**DEPLOY_TASK, "id": OTHER})
            for state in ("completed", "failed", "expired", "superseded")
        ),
        ({"allocation_id": None}, {"allocation_id": None, "id": OTHER}),
    ],
}  # fmt: skip
# Inside it: every pair of these rows is refused.
INSIDE: dict[str, list[Row]] = {
    "one_orphan": [ORPHAN_STATES[state] for state in ("reported", "adopted", "destroying")],
    "one_live_task": [TASK_STATES["queued"], TASK_STATES["dispatched"]],
    "one_live_task_of_orphan": [
        {**ORPHANS_TASK, "state": "queued"}, {**ORPHANS_TASK, "state": "dispatched"},
    ],
    "one_live_task_of_deploy_system": [{**DEPLOY_TASK, "state": "queued"}, {**DEPLOY_TASK, "state": "dispatched"}],
    "ledger_payment_once": [PAYMENT, {**PAYMENT, "kind": "withdrawal", "reference": "why"}],
}  # fmt: skip

# A partition reports its own index.
PARTITIONS = {"log_version": "log_from_0_pkey"}

EXCLUSIONS = {"one_right", "one_occupant", "network_subnets_apart"}


def test_every_unique_index_and_exclusion_has_cases(session: psycopg.Connection[Any]) -> None:
    listed = {name: (table, frozenset(columns)) for name, (table, columns) in ALL.items()}
    assert listed == unique_indexes(session)
    assert exclusion_constraints(session) == EXCLUSIONS


def violated_index(schema: psycopg.Connection[Any], table: str, row: Row) -> str | None:
    """The unique index that inserting `row` violates."""
    with pytest.raises(psycopg.errors.UniqueViolation) as refused, schema.transaction():
        insert(schema, table, **row)
    return refused.value.diag.constraint_name


@pytest.mark.parametrize("name", ALL)
def test_a_second_row_with_the_same_key_is_refused(schema: psycopg.Connection[Any], name: str) -> None:
    table, columns = ALL[name]
    common, second = ROWS.get(name, ({}, SECOND.get(table, {})))
    insert(schema, table, **common)
    row = {**common, **{column: value for column, value in second.items() if column not in columns}}
    assert violated_index(schema, table, row) == PARTITIONS.get(name, name)


@pytest.mark.parametrize("name", UNIQUE)
def test_a_row_that_differs_in_one_column_of_the_key_passes(schema: psycopg.Connection[Any], name: str) -> None:
    """The key has all of its columns, and no unlisted one is enough to be refused."""
    table, columns = UNIQUE[name]
    common, second = ROWS[name] if name in ROWS else ({}, SECOND[table])
    insert(schema, table, **common)
    others = {column: value for column, value in second.items() if column not in columns}
    for column in columns:
        with schema.transaction(force_rollback=True):
            assert insert(schema, table, **{**common, **others, column: second[column]}) == 1


@pytest.mark.parametrize("name", OUTSIDE)
def test_rows_outside_a_partial_index_do_not_count(schema: psycopg.Connection[Any], name: str) -> None:
    table = ALL[name][0]
    for first, second in OUTSIDE[name]:
        with schema.transaction(force_rollback=True):
            insert(schema, table, **first)
            assert insert(schema, table, **{**first, **second}) == 1


@pytest.mark.parametrize("name", INSIDE)
def test_each_pair_inside_a_partial_index_is_refused(schema: psycopg.Connection[Any], name: str) -> None:
    table = UNIQUE[name][0]
    number = SECOND[table]["id"]
    for first in INSIDE[name]:
        with schema.transaction(force_rollback=True):
            insert(schema, table, **first)
            for second in INSIDE[name]:
                assert violated_index(schema, table, {**second, "id": number}) == name


FIRST_DAY, SECOND_DAY = f"[{NOW},{LATER})", f"[{LATER},2026-01-03T00:00:00Z)"
OCCUPIED: Row = {"booked": False, "occupied": True, "occupied_from": NOW}


def claims_exclude(schema: psycopg.Connection[Any], first: Row, second: Row) -> str | None:
    """The exclusion constraint that the second claim violates beside the first; None if both pass."""
    with schema.transaction(force_rollback=True):
        insert(schema, "claims", **first)
        try:
            with schema.transaction():
                insert(schema, "claims", **{"id": 2, "owner_id": OTHER, "node_id": OTHER, **second})
        except psycopg.errors.ExclusionViolation as refused:
            return refused.diag.constraint_name
    return None


@pytest.mark.parametrize(
    ("first", "second", "violated"),
    [
        ({}, {}, "one_right"),
        ({}, {"units": "{[2,9)}"}, "one_right"),
        ({}, {"units": "{[2,3),[8,9)}", "during": SECOND_DAY}, "one_right"),
        ({"during": FIRST_DAY}, {"during": SECOND_DAY}, None),
        ({"during": FIRST_DAY}, {"during": f"[2026-01-01T23:59:59.999999Z,{LATER})"}, "one_right"),
        ({}, {"units": "{[3,4)}"}, None),
        ({}, {"booked": False, "closed_at": NOW}, None),
        ({}, OCCUPIED, None),
        (OCCUPIED, OCCUPIED, "one_occupant"),
        ({**OCCUPIED, "during": FIRST_DAY}, {**OCCUPIED, "during": SECOND_DAY}, "one_occupant"),
        (OCCUPIED, {**OCCUPIED, "units": "{[2,3)}"}, "one_occupant"),
        (OCCUPIED, {**OCCUPIED, "units": "{[3,4)}"}, None),
        (OCCUPIED, {"booked": False, "closed_at": NOW}, None),
    ],
)
def test_claims_exclude_each_other(
    schema: psycopg.Connection[Any], first: Row, second: Row, violated: str | None
) -> None:
    """A unit has one right at a time and one occupant, whatever node, tenant and owner the claims name."""
    assert claims_exclude(schema, first, second) == violated
