"""Ports of machines at switches, and the segments that they carry."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0060"
down_revision = "0059"
LOCKS = ("sites", "tenants", "node_bmcs", "bmc_tasks", "deploy_runs")

_STATEMENTS = b"""
create table site_segments (
    site_id            uuid primary key references sites (id),
    provisioning_vlan  integer not null constraint provisioning_vlan_is_valid check (provisioning_vlan between 1 and 4094),
    first_vlan         integer not null,
    last_vlan          integer not null,
    quarantine_seconds integer not null constraint segment_quarantine_is_bounded check (quarantine_seconds between 0 and 604800),
    changed_at         timestamptz not null default clock_timestamp(),
    changed_by         text not null,
    constraint tenant_vlans_are_valid check (first_vlan >= 1 and first_vlan <= last_vlan and last_vlan <= 4094),
    constraint provisioning_is_no_tenants check (provisioning_vlan not between first_vlan and last_vlan)
);
comment on table site_segments is 'VLANs of a site: one that machines are provisioned in, and those for tenants.';
comment on column site_segments.quarantine_seconds is 'How long no other tenant has a segment that was left.';
create table tenant_segments (
    site_id     uuid not null references site_segments (site_id),
    vlan        integer not null constraint tenant_vlan_is_valid check (vlan between 1 and 4094),
    tenant_id   uuid not null references tenants (id),
    fence       bigint not null,
    leased_at   timestamptz not null default clock_timestamp(),
    returned_at timestamptz,
    free_at     timestamptz,
    constraint tenant_segment_once primary key (site_id, vlan),
    constraint tenant_segment_return_is_whole check (num_nulls(returned_at, free_at) in (0, 2)),
    constraint tenant_segment_is_free_later check (free_at >= returned_at)
);
comment on table tenant_segments is 'Segments that are leased to tenants, and returned ones until another tenant may have them.';
comment on column tenant_segments.fence is 'Drawn when it was leased.';
comment on column tenant_segments.returned_at is 'When the last machine of the tenant was proven to have left it.';
comment on column tenant_segments.free_at is 'From then on another tenant may have it.';
create unique index tenant_segment_of_site on tenant_segments (site_id, tenant_id);
comment on index tenant_segment_of_site is 'A tenant has one segment in a site.';
create table node_ports (
    node_id uuid not null references node_bmcs (node_id),
    site_id uuid not null references site_segments (site_id),
    switch  text not null constraint switch_name check (switch ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    port    text not null constraint switch_port_name check (port ~ '^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,63}$'),
    mac     text not null constraint switch_port_mac check (mac ~ '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$'),
    set_at  timestamptz not null default clock_timestamp(),
    set_by  text not null,
    constraint switch_port_once primary key (site_id, switch, port),
    constraint switch_port_of_mac unique (site_id, mac)
);
comment on table node_ports is 'The port of a switch for each network port of a machine, as an operator has set it.';
create index node_ports_by_node on node_ports (node_id);
comment on index node_ports_by_node is 'The ports of a machine.';
create table node_segments (
    node_id     uuid primary key references node_bmcs (node_id),
    site_id     uuid not null references site_segments (site_id),
    place       text not null constraint node_segment_place check (place in ('provisioning', 'tenant', 'shut')),
    vlan        integer,
    tenant_vlan integer,
    task_id     uuid,
    changed_at  timestamptz not null default clock_timestamp(),
    proven_at   timestamptz,
    isolation   text constraint node_segment_isolation check (isolation in ('none', 'vlan')),
    found       jsonb constraint node_segment_found_is_bounded check (octet_length(found::text) <= 16384),
    foreign key (site_id, tenant_vlan) references tenant_segments (site_id, vlan),
    constraint node_segment_is_leased check (place <> 'tenant' or vlan is not distinct from tenant_vlan),
    constraint node_segment_proof_is_whole check (num_nulls(proven_at, isolation) in (0, 2))
);
comment on table node_segments is 'Where the ports of a machine are to be, and whether it was proven.';
comment on column node_segments.vlan is 'The segment that the newest move names; null: shut, or none was signed yet.';
comment on column node_segments.tenant_vlan is 'A tenant''s segment that the ports may carry, until another place is proven.';
comment on column node_segments.task_id is 'The newest task that moves or compares the ports.';
create index node_segments_by_tenant_vlan on node_segments (site_id, tenant_vlan) where tenant_vlan is not null;
comment on index node_segments_by_tenant_vlan is 'The machines in a segment of a tenant.';
alter table bmc_tasks drop constraint bmc_task_kind, add constraint bmc_task_kind check (
    kind in ('look', 'rotate', 'reseal', 'power_on', 'power_off', 'power_reset', 'start_deploy', 'end_deploy', 'eject',
        'reach', 'reset_bmc', 'move_ports', 'check_ports'));
alter table deploy_runs drop constraint deploy_run_step, add constraint deploy_run_step check (
        step in ('power_off', 'to_provisioning', 'start', 'work', 'eject', 'end', 'to_tenant', 'power_on', 'reach', 'rotate')),
    add column isolation text not null default 'none'
        constraint deploy_run_isolation check (isolation in ('none', 'vlan'));
comment on column deploy_runs.isolation is 'What separates the machine, as its ports were read back; none: nothing.';
"""


def upgrade() -> None:
    """Add what processes of the version before do not use; they leave a run at a step that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
