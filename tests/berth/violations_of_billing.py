"""Ways in which metering and the ledger can contradict the allocations (tests/berth/violations.py)."""

from __future__ import annotations

from tests.berth.violations import planted

_INTERVALS = "alter table metering_intervals disable trigger all; "
_LEDGER = "alter table ledger disable trigger all; "

_CREDIT = (
    "insert into ledger (tenant_id, kind, amount_micro_units, allocation_id, sku, gpus, price_version,"
    " price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version)"
    " select tenant_id, 'credit', {0}, allocation_id, sku, gpus, price_version, price_micro_per_gpu_second, {1}, {2}, 1, 1 from"
    " metering_intervals where allocation_id = {{active}}"
)

_TIME = ("active_at", "active_at + interval '1 microsecond'")
_COST = f"metered_micro_units(gpus, price_micro_per_gpu_second, {_TIME[0]}, {_TIME[1]})"

BILLED = [
    planted(
        "active and not metered", "billing", "is not metered",
        _INTERVALS + "delete from metering_intervals where allocation_id = {active}",
    ),
    planted(
        "metered for another tenant", "billing", "is metered as",
        _INTERVALS + "update metering_intervals set tenant_id = uuidv7() where allocation_id = {active}",
    ),
    planted(
        "metered at another price", "billing", "is metered as",
        _INTERVALS + "update metering_intervals set price_micro_per_gpu_second = 1 where allocation_id = {active}",
    ),
    planted(
        "metered for an allocation that does not exist", "billing", "does not know it",
        "insert into metering_intervals (allocation_id, tenant_id, sku, gpus, price_version, price_micro_per_gpu_second,"
        " active_at, opened_version) select uuidv7(), tenant_id, sku, gpus, price_version, 0, active_at, 1"
        " from metering_intervals where allocation_id = {active}",
    ),
    planted(
        "metering that goes on after the release", "billing", "is metered until open",
        _INTERVALS + _LEDGER + "update metering_intervals set ended_at = null, closed_version = null"
        " where allocation_id = {released}; delete from ledger where allocation_id = {released}",
    ),
    planted(
        "metering that ends a microsecond late", "billing", "is metered until",
        _INTERVALS + "update metering_intervals set ended_at = ended_at + interval '1 microsecond'"
        " where allocation_id = {released}",
    ),
    planted(
        "a line that is a unit too much", "billing", "which costs",
        _LEDGER + "update ledger set amount_micro_units = amount_micro_units + 1 where allocation_id = {released}",
    ),
    planted(
        "a line that is gone", "billing", "charges nothing",
        _LEDGER + "delete from ledger where allocation_id = {released}",
    ),
    planted(
        "a line for an interval that is open", "billing", "which costs nothing",
        "insert into ledger (tenant_id, kind, amount_micro_units, allocation_id, sku, gpus, price_version,"
        " price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version)"
        " select tenant_id, 'usage', 5, allocation_id, sku, gpus, price_version, price_micro_per_gpu_second, active_at,"
        " clock_timestamp(), 5, 1 from metering_intervals where allocation_id = {active}",
    ),
    planted(
        "a credit that is more than the time costs", "billing", "whose metered time costs",
        _CREDIT.format("5", "active_at", "active_at + interval '1 microsecond'"),
    ),
    planted(
        "a credit of time before the allocation was active", "billing", "whose metered time costs nothing",
        _CREDIT.format("0", "active_at - interval '1 second'", "active_at"),
    ),
    planted(
        "a time credited twice", "billing", "credits too",
        _CREDIT.format(_COST, *_TIME) + "; " + _CREDIT.replace("1, 1 from", "1, 2 from").format(_COST, *_TIME),
    ),
    planted(
        "a balance that is a unit too much", "billing", "its ledger adds up to",
        "update balances set settled_micro_units = settled_micro_units + 1 where tenant_id ="
        " (select tenant_id from allocations where id = {active})",
    ),
    planted(
        "a prepaid tenant whose balance has no evaluation time", "billing", "has no time of the next evaluation",
        "update balances set prepaid = true where tenant_id = (select tenant_id from allocations where id = {active})",
    ),
    planted(
        "a balance that was not evaluated in time", "billing", "was due for evaluation at",
        "update balances set prepaid = true, look_at = clock_timestamp() - interval '1 hour'"
        " where tenant_id = (select tenant_id from allocations where id = {active})",
    ),
    planted(
        "a tenant refused for a balance that it does not need", "billing", "is not prepaid",
        "update tenants set depleted_at = clock_timestamp() where id = (select tenant_id from allocations where id = {active})",
    ),
    planted(
        "an allocation that goes on after its balance is used up", "billing P8", "although the balance",
        "update balances set prepaid = true, look_at = clock_timestamp() + interval '1 hour'"
        " where tenant_id = (select tenant_id from allocations where id = {active});"
        " update tenants set depleted_at = clock_timestamp() - interval '1 hour'"
        " where id = (select tenant_id from allocations where id = {active});" + _INTERVALS
        + "alter table allocations disable trigger all; update allocations set active_at = active_at - interval '1 hour'"
        " where id = {active}; update metering_intervals set active_at = active_at - interval '1 hour'"
        " where allocation_id = {active}",
    ),
]  # fmt: skip
