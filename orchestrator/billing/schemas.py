"""Balances and payments as the API takes and shows them (docs/billing.md). Amounts are whole micro-units."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.billing.rules import AMOUNT_MAX
from orchestrator.http.fields import WHOLE, Printable, Request
from orchestrator.http.numbers import BigCount, SignedAmount

Amount = Annotated[int, Field(ge=1, le=AMOUNT_MAX), WHOLE]
Threshold = Annotated[int, Field(ge=0, le=AMOUNT_MAX), WHOLE]


class SetBalancePolicy(Request):
    """Whether what the tenant runs is released by billing when its balance is used up, and below what it is told of that."""

    prepaid: bool
    low_threshold_micro_units: Threshold | None = None


class TopUp(Request):
    """What is given."""

    amount_micro_units: Amount
    reference: Printable | None = Field(None, description="an invoice, a payment")


class Withdraw(Request):
    """What is taken back, and why."""

    amount_micro_units: Amount
    reference: Printable


class Balance(BaseModel):
    """What is left to a tenant."""

    tenant_id: UUID
    prepaid: bool
    settled_micro_units: SignedAmount = Field(description="what was given, less what has ended")
    accruing_micro_units: BigCount = Field(description="what is active, up to now")
    available_micro_units: SignedAmount = Field(description="settled less accruing")
    rate_micro_units_per_second: BigCount = Field(description="what is active costs so much")
    runs_out_at: datetime | None = Field(description="at the present rate; null: it does not")
    low_threshold_micro_units: SignedAmount | None
    low_told_at: datetime | None
    depleted_at: datetime | None = Field(description="since when nothing is left, and nothing can be begun")
    at: datetime = Field(description="the instant that this is about")


class Payment(BaseModel):
    """A line of the ledger that gave or took."""

    id: BigCount
    tenant_id: UUID
    kind: Literal["top_up", "withdrawal"]
    amount_micro_units: SignedAmount
    reference: str | None
    actor_id: str
    written_at: datetime
