"""Releases of machines: the BMC's password is rotated and firmware compared; what is wrong takes the node out of service."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0055"
down_revision = "0054"
LOCKS = ("node_bmcs", "deploy_runs", "slot_quarantines", "node_machines")

_STATEMENTS = b"""
alter table node_bmcs add column rotates_at_release boolean not null default true;
comment on column node_bmcs.rotates_at_release is 'Whether a release rotates the password; false for a BMC that cannot.';
alter table deploy_runs drop constraint deploy_run_step,
    add constraint deploy_run_step check (step in ('power_off', 'start', 'work', 'end', 'power_on', 'reach', 'rotate')),
    add column findings jsonb not null default '[]'
        constraint deploy_run_findings_are_bounded check (octet_length(findings::text) <= 65536);
comment on column deploy_runs.attempts is 'How often the end, or after it the rotation, was requested of the site.';
comment on column deploy_runs.findings is 'What is wrong with the machine after a release: code and detail.';
alter table slot_quarantines drop constraint quarantine_source,
    add constraint quarantine_source check (source in ('operator', 'probe', 'fault_report', 'release'));
alter table node_machines
    add column firmware jsonb constraint machine_firmware_is_bounded check (octet_length(firmware::text) <= 65536),
    add column bmc_firmware jsonb
        constraint machine_bmc_firmware_is_bounded check (octet_length(bmc_firmware::text) <= 131072);
comment on column node_machines.firmware is 'Versions that the deploy system of the inspection read; null: it reported none.';
comment on column node_machines.bmc_firmware is 'Versions that the BMC named at the end of the inspection; null: it named none.';
create table firmware_lists (
    id         uuid primary key default uuidv7(),
    vendor     text not null constraint firmware_vendor_is_bounded check (char_length(vendor) between 1 and 64),
    product    text not null constraint firmware_product_is_bounded check (char_length(product) between 1 and 64),
    components jsonb not null constraint firmware_list_is_bounded check (octet_length(components::text) <= 262144),
    changed_at timestamptz not null default clock_timestamp(),
    changed_by text not null,
    constraint one_firmware_list_of_model unique (vendor, product)
);
comment on table firmware_lists is 'Accepted versions of firmware, by vendor and product of the machine in SMBIOS.';
"""


def upgrade() -> None:
    """Add what processes of the version before neither read nor write; they leave a run at a step that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
