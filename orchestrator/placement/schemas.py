"""Requests and responses of availability."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from orchestrator.catalogue.schemas import GPUS_MAX
from orchestrator.http.fields import Printable
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import Count
from orchestrator.reservations.resource_names import RESOURCES_MAX


class Availability(BaseModel):
    """Free GPUs now. `largest_now`: the largest allowed count that fits on one node; 0 if none fits."""

    sku: str
    region: str
    free_gpus: Count
    largest_now: Count
    total_gpus: Count


class WindowAvailability(Availability):
    """Availability in a window: `available` times `gpus` fit, each on one node; `count` times from `earliest_at` on.

    `reason`: why there is no `earliest_at`.
    """

    gpus: Count
    count: Count
    starts_at: datetime
    ends_at: datetime | None
    available: Count
    earliest_at: datetime | None
    reason: Literal["too_few_nodes", "busy_until_horizon"] | None


class AvailabilityQuery(PageQuery):
    """SKU and region; any other parameter makes it a query for a window."""

    sku: Printable | None = None
    region: Printable | None = None
    gpus: Annotated[int, Field(ge=1, le=GPUS_MAX)] | None = Field(
        None, description="on one node each; default: the smallest count that the SKU comes with"
    )
    count: Annotated[int, Field(ge=1, le=RESOURCES_MAX)] | None = Field(None, description="how many times; default: 1")
    starts_at: Moment | None = Field(None, description="default: now")
    ends_at: Moment | None = Field(None, description="default: open-ended")

    @property
    def of_a_window(self) -> bool:
        """Whether it is a query for a window."""
        return any(asked is not None for asked in (self.gpus, self.count, self.starts_at, self.ends_at))
