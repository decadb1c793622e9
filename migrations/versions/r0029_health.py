"""Health of active allocations, and credits in the ledger."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0029"
down_revision = "0028"

# A process of the earlier code releases an allocation without clearing these columns, so that no constraint binds them to
# the state; readers evaluate them for active allocations alone.
_STATEMENTS = b"""
alter table allocations
    add column restart_policy text not null default 'always'
        constraint restart_policy_is_known check (restart_policy in ('always', 'never')),
    add column health text constraint health_is_known check (health in ('degraded', 'lost')),
    add column health_cause text,
    add column health_since timestamptz,
    add column proof_of_life_at timestamptz,
    add column lost_at timestamptz,
    add column health_until timestamptz,
    add constraint health_is_whole check (num_nulls(health, health_cause, health_since, proof_of_life_at) in (0, 4)
        and (health is not null or health_until is null) and (health is not distinct from 'lost') = (lost_at is not null));
comment on column allocations.restart_policy is 'Whether the node starts the guest again if it ends by itself.';
comment on column allocations.health is 'Health of an active allocation; null: healthy.';
comment on column allocations.health_cause is 'Why it is degraded or lost: guest_down, guest_gone, node_silent.';
comment on column allocations.health_since is 'When the outage was noticed.';
comment on column allocations.proof_of_life_at is 'The last proof that the guest ran, before the outage.';
comment on column allocations.lost_at is 'When it became lost.';
comment on column allocations.health_until is 'When a degraded one counts as lost, and a lost one is released; null: never.';
create index allocations_unhealthy on allocations (health_until) where health is not null and state = 'active';
comment on index allocations_unhealthy is 'The sweeper reads those whose deadline has passed, the earliest first.';
alter table ledger drop constraint ledger_kind_check, drop constraint usage_is_whole, drop constraint payment_is_whole,
    add constraint ledger_kind_check check (kind in ('usage', 'top_up', 'withdrawal', 'credit')),
    add constraint usage_is_whole check ((kind in ('usage', 'credit')) = (num_nulls(allocation_id, sku, gpus, price_version,
        price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version) = 0)),
    add constraint payment_is_whole check ((kind not in ('usage', 'credit')) = (num_nulls(actor_id, operation_key) = 0));
comment on column ledger.version is 'Version of the event that closed the interval, or that ended the outage.';
create unique index ledger_credit_once on ledger (allocation_id, version) where kind = 'credit';
comment on index ledger_credit_once is 'Refuse a second credit of an outage; the next one begins after the end of the last.';
"""


def upgrade() -> None:
    """Add the columns and the index. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
