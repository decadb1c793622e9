"""Balances and the ledger's lines of payments (docs/reference/billing.md).

A balance's lock comes after node, allocation and claim, and before the quota; `tenants.depleted_at` is written under it alone.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from orchestrator.billing.rules import Judgement, Standing
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.problems import NotFound

_LOCK = "select tenant_id from balances where tenant_id = :tenant_id for no key update"
# What has ended and has no line yet is counted to its end, as the line will be: metering may be behind.
_STANDING = """
with clock as materialized (select clock_timestamp() as now)
select b.tenant_id, b.prepaid, b.settled_micro_units as settled, b.low_threshold_micro_units as low_threshold, b.low_told_at,
       t.depleted_at, c.now as at, o.accruing, o.rate, o.running
from clock c cross join balances b join tenants t on t.id = b.tenant_id
cross join lateral (
    select coalesce(sum(metered_micro_units(i.gpus, i.price_micro_per_gpu_second, i.active_at,
                                            coalesce(a.releasing_at, a.failed_at, c.now))), 0) as accruing,
           coalesce(sum(i.gpus * i.price_micro_per_gpu_second::numeric)
                    filter (where coalesce(a.releasing_at, a.failed_at) is null), 0) as rate,
           count(*) filter (where coalesce(a.releasing_at, a.failed_at) is null) as running
    from (select * from metering_intervals where tenant_id = b.tenant_id and ended_at is null offset 0) i
    cross join lateral (select releasing_at, failed_at from allocations where id = i.allocation_id offset 0) a
) o
where b.tenant_id = :tenant_id
"""
_NOTE = """
update balances set low_told_at = case when cast(:low as boolean) then coalesce(low_told_at, cast(:at as timestamptz)) end,
    looked_at = :at,
    look_at = cast(:at as timestamptz) + make_interval(secs => cast(:look_seconds as float8))
where tenant_id = :tenant_id
"""
_NOTE_DEPLETED = """
update tenants set depleted_at = case when cast(:depleted as boolean) then coalesce(depleted_at, cast(:at as timestamptz)) end
where id = :tenant_id and (depleted_at is not null) <> cast(:depleted as boolean)
"""
_SET_POLICY = """
update balances set prepaid = cast(:prepaid as boolean), low_threshold_micro_units = :low_threshold,
    low_told_at = case when cast(:prepaid as boolean) then low_told_at end,
    look_at = case when cast(:prepaid as boolean) then look_at end
where tenant_id = :tenant_id
"""
_DUE = """
select tenant_id from balances where look_at <= (select clock_timestamp()) order by look_at limit :limit
"""
_RUNNING = """
select i.allocation_id
from (select * from metering_intervals where tenant_id = :tenant_id and ended_at is null offset 0) i
cross join lateral (select state from allocations where id = i.allocation_id offset 0) a
where a.state = 'active' order by i.opened_version limit :limit
"""
_LINE = "id, tenant_id, kind, amount_micro_units::bigint as amount_micro_units, reference, actor_id, written_at"
_PAY = f"""
insert into ledger (tenant_id, kind, amount_micro_units, reference, actor_id, operation_key)
values (:tenant_id, :kind, :amount, :reference, :actor_id, :operation_key) returning {_LINE}
"""
_PAID = f"select {_LINE} from ledger where kind <> 'usage' and actor_id = :actor_id and operation_key = :operation_key"
_LATE = """
select coalesce(extract(epoch from clock_timestamp() - min(look_at)), 0)::float8 from balances where look_at is not null
"""


async def lock_balance(tx: Transaction, tenant_id: UUID) -> None:
    """What stands in the balance changes by nobody else until the transaction ends. Raises `NotFound`."""
    if (await tx.execute(_LOCK, {"tenant_id": tenant_id})).first() is None:
        raise NotFound(f"there is no tenant {tenant_id}")


async def read_standing(reading: Reading, tenant_id: UUID) -> Standing:
    """The balance now, in one snapshot. Raises `NotFound`."""
    row = (await reading.execute(_STANDING, {"tenant_id": tenant_id})).first()
    if row is None:
        raise NotFound(f"there is no tenant {tenant_id}")
    values = dict(row._mapping)
    threshold = values["low_threshold"]
    values["low_threshold"] = None if threshold is None else int(threshold)
    return Standing(**values | {name: int(values[name]) for name in ("settled", "accruing", "rate", "running")})


async def note_judgement(tx: Transaction, standing: Standing, judgement: Judgement) -> None:
    """Write down what was found of a locked balance, and when to look again."""
    values = {"tenant_id": standing.tenant_id, "at": standing.at}
    await tx.execute(_NOTE, {**values, "low": judgement.low, "look_seconds": judgement.look_seconds})
    await tx.execute(_NOTE_DEPLETED, {**values, "depleted": judgement.depleted})


async def set_policy(tx: Transaction, tenant_id: UUID, *, prepaid: bool, low_threshold: int | None) -> None:
    """Whether a locked balance is prepaid, and below what it is low."""
    values = {"tenant_id": tenant_id, "prepaid": prepaid, "low_threshold": low_threshold}
    await tx.execute(_SET_POLICY, values)


async def is_depleted(tx: Transaction, tenant_id: UUID) -> bool:
    """Whether the tenant's balance is used up, judged under its lock."""
    await lock_balance(tx, tenant_id)
    row = await tx.execute("select depleted_at is not null from tenants where id = :id", {"id": tenant_id})
    return bool(row.scalar_one())


async def find_due(reading: Reading, limit: int) -> list[UUID]:
    """At most `limit` tenants whose balance is to be looked at by now, the earliest first."""
    return list((await reading.execute(_DUE, {"limit": limit})).scalars())


async def find_running(reading: Reading, tenant_id: UUID, limit: int) -> list[UUID]:
    """At most `limit` of the tenant's metered allocations that are active, the longest first."""
    return list((await reading.execute(_RUNNING, {"tenant_id": tenant_id, "limit": limit})).scalars())


async def find_late_seconds(reading: Reading) -> float:
    """How long ago the balance that is most overdue was to be looked at; not positive if none is."""
    seconds: float = (await reading.execute(_LATE)).scalar_one()
    return seconds


async def pay(
    tx: Transaction, tenant_id: UUID, kind: str, amount: int, reference: str | None, actor_id: str, operation_key: str
) -> dict[str, Any]:
    """Write a line that gives (`top_up`) or takes (`withdrawal`) `amount`; its document. The balance follows by itself."""
    values = {
        "tenant_id": tenant_id, "kind": kind, "amount": amount, "reference": reference, "actor_id": actor_id,
        "operation_key": operation_key,
    }  # fmt: skip
    return dict((await tx.execute(_PAY, values)).one()._mapping)


async def find_payment(tx: Transaction, actor_id: str, operation_key: str) -> dict[str, Any] | None:
    """The line that this key of this operator made, however long ago."""
    row = (await tx.execute(_PAID, {"actor_id": actor_id, "operation_key": operation_key})).first()
    return None if row is None else dict(row._mapping)
