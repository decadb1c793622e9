"""Balances: read, evaluate, and store the evaluation under the balance's lock (docs/reference/billing.md).

Lock order: node, allocation, claim, balance, quota. `tenants.depleted_at` is written only under the balance's lock.
"""

from __future__ import annotations

from uuid import UUID

from orchestrator.billing.rules import BalanceSnapshot, Evaluation, apply_evaluation, evaluate
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.problems import NotFound
from orchestrator.times import rfc3339

_LOCK = "select tenant_id from balances where tenant_id = :tenant_id for no key update"
# An interval that has ended and has no ledger line yet counts up to its end, as the line will: metering may be behind.
_BALANCE = """
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
_STORE_EVALUATION = """
update balances set low_told_at = case when cast(:low as boolean) then coalesce(low_told_at, cast(:at as timestamptz)) end,
    looked_at = :at,
    look_at = cast(:at as timestamptz) + make_interval(secs => cast(:next_seconds as float8))
where tenant_id = :tenant_id
"""
_STORE_DEPLETED = """
update tenants set depleted_at = case when cast(:depleted as boolean) then coalesce(depleted_at, cast(:at as timestamptz)) end
where id = :tenant_id and (depleted_at is not null) <> cast(:depleted as boolean)
"""
_SET_POLICY = """
update balances set prepaid = cast(:prepaid as boolean), low_threshold_micro_units = :low_threshold,
    low_told_at = case when cast(:prepaid as boolean) then low_told_at end,
    look_at = case when cast(:prepaid as boolean) then look_at end
where tenant_id = :tenant_id
"""
_IS_DEPLETED = "select depleted_at is not null from tenants where id = :id"
_DUE = """
select tenant_id from balances where look_at <= (select clock_timestamp()) order by look_at limit :limit
"""
_RUNNING = """
select i.allocation_id
from (select * from metering_intervals where tenant_id = :tenant_id and ended_at is null offset 0) i
cross join lateral (select state from allocations where id = i.allocation_id offset 0) a
where a.state = 'active' order by i.opened_version limit :limit
"""
_LATE = """
select coalesce(extract(epoch from clock_timestamp() - min(look_at)), 0)::float8 from balances where look_at is not null
"""


async def lock_balance(tx: Transaction, tenant_id: UUID) -> None:
    """Lock the balance until the transaction ends. Raises `NotFound`."""
    if (await tx.execute(_LOCK, {"tenant_id": tenant_id})).first() is None:
        raise NotFound(f"there is no tenant {tenant_id}")


async def read_balance(reading: Reading, tenant_id: UUID) -> BalanceSnapshot:
    """Return the present balance, read in one snapshot. Raises `NotFound`."""
    row = (await reading.execute(_BALANCE, {"tenant_id": tenant_id})).first()
    if row is None:
        raise NotFound(f"there is no tenant {tenant_id}")
    values = dict(row._mapping)
    threshold = values["low_threshold"]
    values["low_threshold"] = None if threshold is None else int(threshold)
    return BalanceSnapshot(**values | {name: int(values[name]) for name in ("settled", "accruing", "rate", "running")})


async def evaluate_locked_balance(tx: Transaction, tenant_id: UUID) -> tuple[BalanceSnapshot, Evaluation]:
    """Evaluate a balance that the caller has locked, store the result, and emit `balance.low` and `balance.depleted` if new.

    Both are emitted if the balance dropped through both at once. From the commit on a depleted tenant cannot create.
    """
    balance = await read_balance(tx, tenant_id)
    evaluation = evaluate(balance)
    await _store_evaluation(tx, balance, evaluation)
    if evaluation.emit_low:
        await append_event(tx, _event(EventType.BALANCE_LOW, balance))
    if evaluation.emit_depleted:
        await append_event(tx, _event(EventType.BALANCE_DEPLETED, balance))
    return apply_evaluation(balance, evaluation), evaluation


async def _store_evaluation(tx: Transaction, balance: BalanceSnapshot, evaluation: Evaluation) -> None:
    values = {"tenant_id": balance.tenant_id, "at": balance.at}
    await tx.execute(_STORE_EVALUATION, {**values, "low": evaluation.low, "next_seconds": evaluation.next_seconds})
    await tx.execute(_STORE_DEPLETED, {**values, "depleted": evaluation.depleted})


def _event(event_type: EventType, balance: BalanceSnapshot) -> Event:
    payload = {
        "settled_micro_units": balance.settled,
        "accruing_micro_units": balance.accruing,
        "available_micro_units": balance.available,
        "low_threshold_micro_units": balance.low_threshold,
        "rate_micro_units_per_second": balance.rate,
        "runs_out_at": rfc3339(balance.runs_out_at),
        "judged_at": rfc3339(balance.at),
    }
    return Event(event_type, f"tenants/{balance.tenant_id}", balance.tenant_id, balance.tenant_id, payload)


async def set_policy(tx: Transaction, tenant_id: UUID, *, prepaid: bool, low_threshold: int | None) -> None:
    """Set whether a locked balance is prepaid, and the threshold below which it is low."""
    values = {"tenant_id": tenant_id, "prepaid": prepaid, "low_threshold": low_threshold}
    await tx.execute(_SET_POLICY, values)


async def is_depleted(tx: Transaction, tenant_id: UUID) -> bool:
    """Return whether the tenant's balance is depleted; locks the balance first. Raises `NotFound`."""
    await lock_balance(tx, tenant_id)
    row = await tx.execute(_IS_DEPLETED, {"id": tenant_id})
    return bool(row.scalar_one())


async def find_due(reading: Reading, limit: int) -> list[UUID]:
    """Return at most `limit` tenants whose balance is due for evaluation, the most overdue first."""
    return list((await reading.execute(_DUE, {"limit": limit})).scalars())


async def find_running(reading: Reading, tenant_id: UUID, limit: int) -> list[UUID]:
    """Return at most `limit` of the tenant's metered allocations that are active, the longest-running first."""
    return list((await reading.execute(_RUNNING, {"tenant_id": tenant_id, "limit": limit})).scalars())


async def find_late_seconds(reading: Reading) -> float:
    """Return how long the most overdue evaluation has been due, in seconds; not positive if none is."""
    seconds: float = (await reading.execute(_LATE)).scalar_one()
    return seconds
