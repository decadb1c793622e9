"""Images of the catalogue, as the API answers them."""

from __future__ import annotations

from pydantic import Field

from berth.client.models import Answer


class ImageStatement(Answer):
    """What an image states of itself; None: not stated. Sizes are bytes.

    `cloud_init`: the guest applies the NoCloud seed, user data too. `readiness`: `message`, `ssh` or `tcp_port`.
    """

    format: str | None = None
    firmware: str = "bios"
    login_user: str = "tenant"
    cloud_init: bool = True
    readiness: str = "message"
    readiness_port: int | None = None
    disk_bytes_min: int | None = None
    size_bytes: int | None = None
    gpu_driver_version: str | None = None
    fabric_manager_version: str | None = None


class OfferedImage(Answer):
    """An image that a create may name. `gpu_models` and `regions` of None mean any."""

    name: str
    sha256: str
    shapes: list[str]
    gpu_models: list[str] | None = None
    regions: list[str] | None = None
    statement: ImageStatement = Field(default_factory=ImageStatement)


class Image(Answer):
    """What a node boots, as operators see it. `gpu_models` and `regions` of None mean any."""

    name: str
    url: str
    sha256: str
    shapes: list[str]
    gpu_models: list[str] | None = None
    regions: list[str] | None = None
    state: str = "active"
    statement: ImageStatement = Field(default_factory=ImageStatement)
