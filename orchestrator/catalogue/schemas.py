"""What is sold, where, and with which images."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from orchestrator.allocations.states import Shape
from orchestrator.http.fields import WHOLE, Name, Printable, RegionName, Request
from orchestrator.http.moments import Moment
from orchestrator.http.numbers import BigCount, Count
from orchestrator.http.paging import PageQuery

SLOTS_MAX = 62  # the mask of all slots, plus one, is still a bigint
COUNTS_MAX = SLOTS_MAX
PRICE_MAX = 10**15  # a thousand million per GPU and second; exact in every JSON reader

ShapeName = Annotated[Shape, Field(strict=False)]
OfferState = Literal["active", "retired"]
GPUS_MAX = 4096  # more than any node has: such a request is refused as such, not as misspelt
AVAILABLE_COUNT_MAX = 1_024  # as many as a reservation can hold
GpuCount = Annotated[int, Field(ge=1, le=GPUS_MAX), WHOLE]


class PutRegion(Request):
    """A region as operators write it."""

    display_name: Printable


class PutSku(Request):
    """A SKU as operators write it. Price and state keep their value when left out."""

    shape: ShapeName
    gpu_model: Printable
    allowed_counts: Annotated[list[GpuCount], Field(min_length=1, max_length=COUNTS_MAX)]
    default_image: Name | None = None
    price_micro_per_gpu_second: Annotated[int, Field(ge=0, le=PRICE_MAX), WHOLE] | None = None
    state: OfferState | None = None


class PutImage(Request):
    """An image as operators write it. Null models or regions: any. The state keeps its value when left out."""

    url: Annotated[str, Field(pattern=r"^(https?|file)://[\x21-\x7e]+$", max_length=2_000)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    shapes: Annotated[list[ShapeName], Field(min_length=1, max_length=2)]
    gpu_models: Annotated[list[Printable], Field(min_length=1, max_length=100)] | None = None
    regions: Annotated[list[RegionName], Field(min_length=1, max_length=100)] | None = None
    state: OfferState | None = None


class Region(BaseModel):
    """Where nodes are."""

    name: str
    display_name: str


class Sku(BaseModel):
    """What is sold."""

    name: str
    shape: Shape
    gpu_model: str
    allowed_counts: list[Count]
    default_image: str | None
    price_micro_per_gpu_second: BigCount
    price_version: Count
    state: OfferState


class Image(BaseModel):
    """What a node boots."""

    name: str
    url: str
    sha256: str
    shapes: list[Shape]
    gpu_models: list[str] | None
    regions: list[str] | None
    state: OfferState


class Availability(BaseModel):
    """What could be placed now: `largest_now` is the largest allowed count that one node could take; 0: none."""

    sku: str
    region: str
    free_gpus: Count
    largest_now: Count
    total_gpus: Count


class WindowAvailability(Availability):
    """What can be had throughout a window: `available` times `gpus`, each on one node; `count` times from `earliest_at` on.

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
    """For which SKU and region; with any of the others, in a window: how many, and from when."""

    sku: Printable | None = None
    region: Printable | None = None
    gpus: Annotated[int, Field(ge=1, le=GPUS_MAX)] | None = Field(
        None, description="on one node each; default: the smallest count that the SKU comes with"
    )
    count: Annotated[int, Field(ge=1, le=AVAILABLE_COUNT_MAX)] | None = Field(
        None, description="how many times; default: 1"
    )
    starts_at: Moment | None = Field(None, description="default: now")
    ends_at: Moment | None = Field(None, description="default: open-ended")

    @property
    def of_a_window(self) -> bool:
        """Whether more is asked than what is free now."""
        return any(asked is not None for asked in (self.gpus, self.count, self.starts_at, self.ends_at))
