"""Each foreign key refuses a row without its parent and the deletion of a parent with rows."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.schema.catalog import foreign_keys
from tests.support.rows import TENANT, Row, heed_triggers, ignore_triggers, insert

FOREIGN_KEYS = {
    "archived_allocations_segment_fkey": ("archived_allocations", "archive_segments"),
    "api_keys_tenant_id_fkey": ("api_keys", "tenants"),
    "console_sessions_node_id_fkey": ("console_sessions", "nodes"),
    "balances_tenant_id_fkey": ("balances", "tenants"),
    "enrolment_tokens_node_id_fkey": ("enrolment_tokens", "nodes"),
    "attestation_challenges_node_id_fkey": ("attestation_challenges", "nodes"),
    "maintenance_tasks_window_id_fkey": ("maintenance_tasks", "maintenance_windows"),
    "maintenance_units_window_id_fkey": ("maintenance_units", "maintenance_windows"),
    "network_addresses_allocation_id_fkey": ("network_addresses", "allocations"),
    "network_addresses_network_id_fkey": ("network_addresses", "networks"),
    "network_vlans_region_fkey": ("network_vlans", "regions"),
    "networks_region_fkey": ("networks", "regions"),
    "networks_tenant_id_fkey": ("networks", "tenants"),
    "published_ports_allocation_id_fkey": ("published_ports", "network_addresses"),
    "published_ports_node_id_fkey": ("published_ports", "nodes"),
    "node_burn_ins_node_id_fkey": ("node_burn_ins", "nodes"),
    "node_drains_node_id_fkey": ("node_drains", "nodes"),
    "deploy_systems_node_id_fkey": ("deploy_systems", "nodes"),
    "deploy_runs_node_id_fkey": ("deploy_runs", "nodes"),
    "awaited_inventories_node_id_fkey": ("awaited_inventories", "nodes"),
    "awaited_inventories_epoch_fkey": ("awaited_inventories", "restores"),
    "restore_replays_epoch_fkey": ("restore_replays", "restores"),
    "deploy_tasks_node_id_fkey": ("deploy_tasks", "nodes"),
    "deploy_task_has_permission": ("deploy_tasks", "deploy_systems"),
    "node_machines_node_id_fkey": ("node_machines", "nodes"),
    "node_attestations_node_id_fkey": ("node_attestations", "nodes"),
    "node_accepted_pcrs_node_id_fkey": ("node_accepted_pcrs", "nodes"),
    "node_gpu_resets_node_id_fkey": ("node_gpu_resets", "nodes"),
    "node_health_node_id_fkey": ("node_health", "nodes"),
    "node_health_reports_node_id_fkey": ("node_health_reports", "nodes"),
    "node_topologies_node_id_fkey": ("node_topologies", "nodes"),
    "wipe_certificates_key_set_sha256_fkey": ("wipe_certificates", "wipe_key_sets"),
    "node_tpms_node_id_fkey": ("node_tpms", "nodes"),
    "site_agents_site_id_fkey": ("site_agents", "sites"),
    "site_agent_tokens_agent_id_fkey": ("site_agent_tokens", "site_agents"),
    "site_agent_certificates_agent_id_fkey": ("site_agent_certificates", "site_agents"),
    "site_agent_certificate_requests_agent_id_fkey": ("site_agent_certificate_requests", "site_agents"),
    "node_bmcs_node_id_fkey": ("node_bmcs", "nodes"),
    "node_bmcs_site_id_fkey": ("node_bmcs", "sites"),
    "bmc_credentials_node_id_fkey": ("bmc_credentials", "node_bmcs"),
    "bmc_tasks_node_id_fkey": ("bmc_tasks", "node_bmcs"),
    "site_segments_site_id_fkey": ("site_segments", "sites"),
    "tenant_segments_site_id_fkey": ("tenant_segments", "site_segments"),
    "tenant_segments_tenant_id_fkey": ("tenant_segments", "tenants"),
    "node_ports_node_id_fkey": ("node_ports", "node_bmcs"),
    "node_ports_site_id_fkey": ("node_ports", "site_segments"),
    "node_segments_node_id_fkey": ("node_segments", "node_bmcs"),
    "node_segments_site_id_fkey": ("node_segments", "site_segments"),
    "node_segments_site_id_tenant_vlan_fkey": ("node_segments", "tenant_segments"),
    "pool_attestations_pool_id_fkey": ("pool_attestations", "pools"),
    "certificate_requests_node_id_fkey": ("certificate_requests", "nodes"),
    "node_certificates_node_id_fkey": ("node_certificates", "nodes"),
    "fault_reports_node_id_fkey": ("fault_reports", "nodes"),
    "hardware_history_node_id_fkey": ("hardware_history", "nodes"),
    "hardware_places_node_id_fkey": ("hardware_places", "nodes"),
    "slot_quarantines_node_id_fkey": ("slot_quarantines", "nodes"),
    "node_orphans_node_id_fkey": ("node_orphans", "nodes"),
    "nodes_pool_id_fkey": ("nodes", "pools"),
    "pools_region_fkey": ("pools", "regions"),
    "sku_prices_sku_fkey": ("sku_prices", "skus"),
    "skus_default_image_fkey": ("skus", "images"),
    "slots_node_id_fkey": ("slots", "nodes"),
    "ssh_keys_tenant_id_fkey": ("ssh_keys", "tenants"),
    "tenant_invitations_tenant_id_fkey": ("tenant_invitations", "tenants"),
    "tenant_members_tenant_id_fkey": ("tenant_members", "tenants"),
    "tenant_quotas_tenant_id_fkey": ("tenant_quotas", "tenants"),
    "webhook_deliveries_webhook_id_fkey": ("webhook_deliveries", "webhooks"),
    "webhooks_tenant_id_fkey": ("webhooks", "tenants"),
}
"""Referring and referred table."""

CHANGES: dict[str, Row] = {"api_keys": {"role": "tenant", "tenant_id": TENANT}}


def test_every_foreign_key_has_cases(session: psycopg.Connection[Any]) -> None:
    assert foreign_keys(session) == FOREIGN_KEYS


@pytest.mark.parametrize("name", FOREIGN_KEYS)
def test_a_row_without_its_parent_is_refused(schema: psycopg.Connection[Any], name: str) -> None:
    table, _ = FOREIGN_KEYS[name]
    ignore_triggers(schema)
    for other, (of, parent) in FOREIGN_KEYS.items():
        if of == table and other != name:
            insert(schema, parent)
    heed_triggers(schema)
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as refused, schema.transaction():
        insert(schema, table, **CHANGES.get(table, {}))
    assert refused.value.diag.constraint_name == name


LEASES = {
    "deploy_task_has_permission", "network_addresses_allocation_id_fkey", "network_addresses_network_id_fkey",
    "published_ports_allocation_id_fkey",
}  # fmt: skip
"""A lease goes with its parent."""


@pytest.mark.parametrize("name", sorted(LEASES))
def test_a_lease_goes_with_its_parent(schema: psycopg.Connection[Any], name: str) -> None:
    table, parent = FOREIGN_KEYS[name]
    ignore_triggers(schema)
    insert(schema, parent)
    insert(schema, table, **CHANGES.get(table, {}))
    heed_triggers(schema)
    schema.execute(f"delete from {parent}".encode())
    found = schema.execute(f"select count(*) from {table}".encode()).fetchone()
    assert found == (0,)


@pytest.mark.parametrize("name", sorted(FOREIGN_KEYS.keys() - LEASES))
def test_a_parent_with_rows_is_not_deleted(schema: psycopg.Connection[Any], name: str) -> None:
    table, parent = FOREIGN_KEYS[name]
    ignore_triggers(schema)
    insert(schema, parent)
    insert(schema, table, **CHANGES.get(table, {}))
    heed_triggers(schema)
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as refused, schema.transaction():
        schema.execute(f"delete from {parent}".encode())
    assert refused.value.diag.constraint_name == name
