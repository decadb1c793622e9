"""The first boot of guests, as their nodes report it."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0043"
down_revision = "0042"

# A process of the earlier code ends an allocation without clearing these columns, so that no constraint binds them to the state;
# readers evaluate them for active allocations alone. The constraints stay `not valid`: every row has nulls there, later rows are
# checked, and a validation would read the whole table under the lock that keeps allocations from being created.
_STATEMENTS = b"""
alter table allocations
    add column first_boot text,
    add column first_boot_detail text,
    add column first_boot_since timestamptz;
comment on column allocations.first_boot is 'Whether cloud-init of the present disk has ended; null: nothing is known.';
comment on column allocations.first_boot_detail is 'What the guest said of it.';
comment on column allocations.first_boot_since is 'When the control plane learned of it.';
alter table allocations
    add constraint first_boot_is_known check (
        first_boot in ('pending', 'done', 'degraded', 'error', 'unknown', 'not_applicable')) not valid,
    add constraint first_boot_is_whole check (num_nulls(first_boot, first_boot_since) in (0, 2)
        and (first_boot is not null or first_boot_detail is null) and char_length(first_boot_detail) <= 500) not valid;
"""


def upgrade() -> None:
    """Add the columns. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
