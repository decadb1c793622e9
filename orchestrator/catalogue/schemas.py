"""What is sold, where, and with which images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from orchestrator.catalogue.shapes import Shape
from orchestrator.http.fields import WHOLE, Name, Printable, RegionName, Request
from orchestrator.http.types.numbers import BigCount, Count

SLOTS_MAX = 62  # the mask of all slots, plus one, is still a bigint
COUNTS_MAX = SLOTS_MAX
PRICE_MAX = 10**15  # a thousand million per GPU and second; exact in every JSON reader

ShapeName = Annotated[Shape, Field(strict=False)]
OfferState = Literal["active", "retired"]
GPUS_MAX = 4096  # more than any node has
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


class OfferedImage(BaseModel):
    """An image that a create may name; null models or regions: any."""

    name: str
    sha256: str
    shapes: list[Shape]
    gpu_models: list[str] | None
    regions: list[str] | None


class Image(BaseModel):
    """What a node boots."""

    name: str
    url: str
    sha256: str
    shapes: list[Shape]
    gpu_models: list[str] | None
    regions: list[str] | None
    state: OfferState
