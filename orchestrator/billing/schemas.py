"""Balances, payments and usage as the API accepts and returns them (docs/reference/billing.md). Amounts are whole micro-units."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.billing.rules import AMOUNT_MAX, Grouping
from orchestrator.http.fields import WHOLE, Printable, Request
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import BigCount, Count, SignedAmount

Amount = Annotated[int, Field(ge=1, le=AMOUNT_MAX), WHOLE]
Threshold = Annotated[int, Field(ge=0, le=AMOUNT_MAX), WHOLE]


class SetBalancePolicy(Request):
    """Whether billing releases the tenant's allocations when its balance is depleted, and when the balance counts as low."""

    prepaid: bool
    low_threshold_micro_units: Threshold | None = None


class TopUp(Request):
    """An amount to add."""

    amount_micro_units: Amount
    reference: Printable | None = Field(None, description="an invoice, a payment")


class Withdraw(Request):
    """An amount to take back, and the reason."""

    amount_micro_units: Amount
    reference: Printable


class Balance(BaseModel):
    """A tenant's balance at one instant."""

    tenant_id: UUID
    prepaid: bool
    settled_micro_units: SignedAmount = Field(description="payments less the cost of what has ended")
    accruing_micro_units: BigCount = Field(description="cost so far of what is active")
    available_micro_units: SignedAmount = Field(description="settled less accruing")
    rate_micro_units_per_second: BigCount = Field(description="cost per second of what is active")
    runs_out_at: datetime | None = Field(description="when nothing is left at the present rate; null: never")
    low_threshold_micro_units: SignedAmount | None
    low_told_at: datetime | None = Field(
        description="when `balance.low` was emitted; null while the balance is not low"
    )
    depleted_at: datetime | None = Field(description="since when nothing is left and creates are refused")
    at: datetime = Field(description="the instant of this balance")


class Payment(BaseModel):
    """A ledger line of a top-up or a withdrawal."""

    id: BigCount
    tenant_id: UUID
    kind: Literal["top_up", "withdrawal"]
    amount_micro_units: SignedAmount
    reference: str | None
    actor_id: str
    written_at: datetime


class UsageQuery(PageQuery):
    """The window, the grouping and the tenant of a usage request."""

    by: Grouping = Grouping.DAY
    from_: Moment | None = Field(None, alias="from", description="default: the beginning of the month of `to`, UTC")
    to: Moment | None = Field(None, description="default: now")
    tenant_id: UUID | None = Field(None, description="for operators' keys; default: all tenants")


class UsageItem(BaseModel):
    """Usage of one allocation (with its SKU, price and times), or of a tenant in one day or in the whole window."""

    tenant_id: UUID
    allocation_id: UUID | None = None
    day: date | None = None
    allocations: Count | None = None
    sku: str | None = None
    gpus: Count | None = None
    price_version: Count | None = None
    price_micro_per_gpu_second: BigCount | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    is_open: bool = Field(description="some of it is still active and counted up to now")
    gpu_microseconds: BigCount
    amount_micro_units: SignedAmount
