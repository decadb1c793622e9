"""What is sold, where, and with which images."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from node_agent.wire.fields import INTEGER_MAX
from node_agent.wire.guests import MEMORY_STEP_BYTES
from node_agent.wire.images import LOGIN_USER, LOGIN_USER_PATTERN, BootFirmware, ImageFormat, Readiness
from orchestrator.catalogue import image_statement
from orchestrator.catalogue.shapes import SLOTS_MAX, Shape
from orchestrator.http.fields import WHOLE, Name, Printable, RegionName, Request
from orchestrator.http.types.numbers import BigCount, Count, Port

COUNTS_MAX = SLOTS_MAX
PRICE_MAX = 10**15  # a thousand million per GPU and second; exact in every JSON reader

ShapeName = Annotated[Shape, Field(strict=False)]
OfferState = Literal["active", "retired"]
VCPUS_PER_GPU_MAX = 256
GPUS_MAX = 4096  # more than any node has
VERSION_PATTERN = r"^[0-9]{1,6}(\.[0-9]{1,6}){1,3}$"
GpuCount = Annotated[int, Field(ge=1, le=GPUS_MAX), WHOLE]


class PutRegion(Request):
    """A region as operators write it."""

    display_name: Printable


class PutSku(Request):
    """A SKU as operators write it. Price and state keep their value when left out.

    `vcpus_per_gpu`, `memory_bytes_per_gpu`: what a guest of a slice has for each GPU, fixed when the SKU is made; null: the
    share that its node gives a slot.
    """

    shape: ShapeName
    gpu_model: Printable
    allowed_counts: Annotated[list[GpuCount], Field(min_length=1, max_length=COUNTS_MAX)]
    default_image: Name | None = None
    price_micro_per_gpu_second: Annotated[int, Field(ge=0, le=PRICE_MAX), WHOLE] | None = None
    state: OfferState | None = None
    vcpus_per_gpu: Annotated[int, Field(ge=1, le=VCPUS_PER_GPU_MAX), WHOLE] | None = None
    memory_bytes_per_gpu: (
        Annotated[int, Field(ge=64 * 2**20, le=2**46, multiple_of=MEMORY_STEP_BYTES), WHOLE] | None
    ) = None

    @model_validator(mode="after")
    def _size_is_of_slices(self) -> Self:
        if self.shape is not Shape.GPU_SLICE and (self.vcpus_per_gpu or self.memory_bytes_per_gpu):
            raise ValueError("a size of guests belongs to shape gpu_slice: bare metal has the whole machine")
        return self


class PutImageStatement(Request):
    """What an image states of itself. It is replaced as a whole; what is left out has its default.

    `format` null: nodes accept qcow2 and raw. `cloud_init`: the guest applies the NoCloud seed. `readiness`: what shows that
    a guest has started, before its SSH server is asked.
    """

    format: Annotated[ImageFormat, Field(strict=False)] | None = None
    firmware: Annotated[BootFirmware, Field(strict=False)] = BootFirmware.BIOS
    login_user: Annotated[str, Field(pattern=LOGIN_USER_PATTERN)] = LOGIN_USER
    cloud_init: bool = True
    readiness: Annotated[Readiness, Field(strict=False)] = Readiness.MESSAGE
    readiness_port: Annotated[int, Field(ge=1, le=65_535), WHOLE] | None = None
    disk_bytes_min: Annotated[int, Field(ge=1, le=INTEGER_MAX), WHOLE] | None = None
    size_bytes: Annotated[int, Field(ge=1, le=INTEGER_MAX), WHOLE] | None = None
    gpu_driver_version: Annotated[str, Field(pattern=VERSION_PATTERN)] | None = None
    fabric_manager_version: Annotated[str, Field(pattern=VERSION_PATTERN)] | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if not self.cloud_init and self.readiness is Readiness.MESSAGE:
            raise ValueError("the ready message needs cloud-init: readiness is ssh or tcp_port without it")
        if (self.readiness is Readiness.TCP_PORT) != (self.readiness_port is not None):
            raise ValueError("readiness_port belongs to readiness tcp_port, which needs one")
        if self.fabric_manager_version not in (None, self.gpu_driver_version):
            raise ValueError(
                "fabric_manager_version must equal gpu_driver_version: the fabric manager accepts no other driver"
            )
        return self

    def stated(self) -> image_statement.ImageStatement:
        """The statement to store."""
        return image_statement.ImageStatement(**self.model_dump(mode="json"))


class PutImage(Request):
    """An image as operators write it. Null models or regions: any. State and statement stay as they are when left out."""

    url: Annotated[str, Field(pattern=r"^(https?|file)://[\x21-\x7e]+$", max_length=2_000)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    shapes: Annotated[list[ShapeName], Field(min_length=1, max_length=2)]
    gpu_models: Annotated[list[Printable], Field(min_length=1, max_length=100)] | None = None
    regions: Annotated[list[RegionName], Field(min_length=1, max_length=100)] | None = None
    state: OfferState | None = None
    statement: PutImageStatement | None = None


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
    vcpus_per_gpu: Count | None
    memory_bytes_per_gpu: BigCount | None


class ImageStatement(BaseModel):
    """What an image states of itself; null: not stated."""

    format: ImageFormat | None
    firmware: BootFirmware
    login_user: str
    cloud_init: bool
    readiness: Readiness
    readiness_port: Port | None
    disk_bytes_min: BigCount | None
    size_bytes: BigCount | None
    gpu_driver_version: str | None
    fabric_manager_version: str | None


class OfferedImage(BaseModel):
    """An image that a create may name; null models or regions: any."""

    name: str
    sha256: str
    shapes: list[Shape]
    gpu_models: list[str] | None
    regions: list[str] | None
    statement: ImageStatement


class Image(BaseModel):
    """What a node boots."""

    name: str
    url: str
    sha256: str
    shapes: list[Shape]
    gpu_models: list[str] | None
    regions: list[str] | None
    state: OfferState
    statement: ImageStatement
