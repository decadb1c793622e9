"""The size of guests: what a SKU states, and what the slots of a node have by the approved topology."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0044"
down_revision = "0043"

_STATEMENTS = b"""
alter table skus
    add column vcpus_per_gpu        integer constraint sku_vcpus_are_bounded check (vcpus_per_gpu between 1 and 256),
    add column memory_bytes_per_gpu bigint constraint sku_memory_is_bounded check (
        memory_bytes_per_gpu between 67108864 and 70368744177664 and memory_bytes_per_gpu % 1048576 = 0),
    add constraint sku_size_is_of_slices check (
        shape = 'gpu_slice' or num_nonnulls(vcpus_per_gpu, memory_bytes_per_gpu) = 0);
comment on column skus.vcpus_per_gpu is 'vCPUs of a guest for each GPU; null: what its node gives a slot. Never changed.';
comment on column skus.memory_bytes_per_gpu is 'Memory of a guest for each GPU; null: what its node gives a slot.';
alter table node_topologies
    add column slot_processors   integer,
    add column slot_memory_bytes bigint;
comment on column node_topologies.slot_processors is 'The least that a slot has by the approved topology; null: not known.';
comment on column node_topologies.slot_memory_bytes is 'The least that a slot has by the approved topology; null: not known.';
"""


def upgrade() -> None:
    """Add the columns. Processes of the version before do not use them; what slots have is recorded at the next discovery."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
