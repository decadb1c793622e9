"""What was used, and what it costs (docs/reference/billing.md)."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from berth.client.calls.call import Call, read_page, written
from berth.client.models import Answer, Page


class Usage(Answer):
    """Of one allocation (then with its SKU, price and times), or of all of a tenant's, in a day or in the window.

    `is_open`: some of it is still active, and counted up to now.
    """

    tenant_id: UUID
    allocation_id: UUID | None = None
    day: date | None = None
    allocations: int | None = None
    sku: str | None = None
    gpus: int | None = None
    price_version: int | None = None
    price_micro_per_gpu_second: int | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    is_open: bool
    gpu_microseconds: int
    amount_micro_units: int


def list_usage(
    *,
    by: str | None = None,
    begin: datetime | None = None,
    end: datetime | None = None,
    tenant_id: UUID | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Usage]]:
    """What was active in `[begin, end)`, by `allocation`, `day` (UTC; the default) or `tenant`; an operator's key: of all
    tenants, or the one named.
    """
    window: dict[str, str | None] = {"from": written(begin), "to": written(end)}
    return read_page(
        "/api/v1/usage", Usage, by=by, tenant_id=None if tenant_id is None else str(tenant_id), limit=limit, cursor=cursor,
        **window,
    )  # fmt: skip
