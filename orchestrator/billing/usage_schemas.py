"""What was used."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.billing.store.usage import Grouping
from orchestrator.http.moments import Moment
from orchestrator.http.numbers import BigCount, Count, SignedAmount
from orchestrator.http.paging import PageQuery


class UsageQuery(PageQuery):
    """Which usage, and in which parts."""

    by: Grouping = Grouping.DAY
    from_: Moment | None = Field(None, alias="from", description="default: the beginning of the month of `to`, UTC")
    to: Moment | None = Field(None, description="default: now")
    tenant_id: UUID | None = Field(None, description="for operators' keys; default: all tenants")


class UsageItem(BaseModel):
    """Of one allocation (then with its SKU, price and times), or of all of a tenant's, in a day or in the window."""

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
    is_open: bool = Field(description="some of it is still active, and counted up to now")
    gpu_microseconds: BigCount
    amount_micro_units: SignedAmount
