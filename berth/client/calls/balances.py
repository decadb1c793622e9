"""Prepaid balances, one function per path (docs/reference/billing.md). Amounts are whole micro-units."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.calls.call import Call, read, write
from berth.client.models import Answer

ADMIN = "/api/v1/admin/tenants"


class Balance(Answer):
    """What is left to a tenant at the instant `at`: `available` is `settled` less what is active and has no line yet."""

    tenant_id: UUID
    prepaid: bool
    settled_micro_units: int
    accruing_micro_units: int
    available_micro_units: int
    rate_micro_units_per_second: int
    runs_out_at: datetime | None = None
    low_threshold_micro_units: int | None = None
    low_told_at: datetime | None = None
    depleted_at: datetime | None = None
    at: datetime


class Payment(Answer):
    """A line of the ledger that gave (`top_up`) or took (`withdrawal`)."""

    id: int
    tenant_id: UUID
    kind: str
    amount_micro_units: int
    reference: str | None = None
    actor_id: str
    written_at: datetime


def get_balance(*, tenant_id: UUID | None = None) -> Call[Balance]:
    """What is left to the tenant; an operator's key names one. Raises `NotFound`."""
    return read("/api/v1/balance", Balance, tenant_id=None if tenant_id is None else str(tenant_id))


def get_balance_of(tenant_id: UUID) -> Call[Balance]:
    """What is left to a tenant, for operators. Raises `NotFound`, `Forbidden`."""
    return read(f"{ADMIN}/{tenant_id}/balance", Balance)


def set_balance_policy(
    tenant_id: UUID,
    *,
    prepaid: bool,
    low_threshold_micro_units: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Balance]:
    """Set whether a tenant is prepaid, and the amount below which its balance is low (None: never).

    Raises `BalanceInsufficient` for one that holds GPUs and has nothing left, `NotFound`, `Forbidden`.
    """
    body = {"prepaid": prepaid, "low_threshold_micro_units": low_threshold_micro_units}
    return write("PUT", f"{ADMIN}/{tenant_id}/balance", Balance, body, idempotency_key)


def top_up_balance(
    tenant_id: UUID, *, amount_micro_units: int, reference: str | None = None, idempotency_key: str | None = None
) -> Call[Payment]:
    """Give to a tenant's balance. Raises `BalanceOutOfBounds`, `NotFound`, `Forbidden`."""
    body = {"amount_micro_units": amount_micro_units, "reference": reference}
    return write("POST", f"{ADMIN}/{tenant_id}/top-ups", Payment, body, idempotency_key)


def withdraw_from_balance(
    tenant_id: UUID, *, amount_micro_units: int, reference: str, idempotency_key: str | None = None
) -> Call[Payment]:
    """Take back what was given by mistake, or is paid back. Raises `BalanceOutOfBounds`, `NotFound`, `Forbidden`."""
    body = {"amount_micro_units": amount_micro_units, "reference": reference}
    return write("POST", f"{ADMIN}/{tenant_id}/withdrawals", Payment, body, idempotency_key)
