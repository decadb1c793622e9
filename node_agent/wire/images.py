"""The image of a task: where it is, and what it states of itself that a node must know."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from node_agent.wire.fields import Whole, Wire

IMAGE_CHECKS_FEATURE: Final = "image_checks"
"""The agent checks format and smallest disk of an image; one of the version before refuses a task that names them."""
LOGIN_USER_PATTERN: Final = r"^[a-z_][a-z0-9_-]{0,31}$"
"""A login name, as useradd(8) has them."""
LOGIN_USER: Final = "tenant"
"""The login user of an image that states none."""


class ImageFormat(StrEnum):
    """The format of the file."""

    QCOW2 = "qcow2"
    RAW = "raw"


class BootFirmware(StrEnum):
    """The firmware that the image boots with."""

    BIOS = "bios"
    UEFI = "uefi"


class Readiness(StrEnum):
    """What shows that a guest of the image has started. In every case its SSH server must answer after that."""

    MESSAGE = "message"
    """The ready message with the seed's nonce: needs cloud-init."""
    SSH = "ssh"
    """Its SSH server answers."""
    TCP_PORT = "tcp_port"
    """A TCP port of the guest accepts connections."""


def _is_none(value: object) -> bool:
    return value is None


class ImageParameters(Wire):
    """The image to boot: where it is, what its bytes must hash to, and what it states of itself.

    Defaults are left out: an agent of the version before refuses unknown parameters, and so an image that it would boot
    wrongly.
    """

    name: str
    url: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    format: ImageFormat | None = Field(None, exclude_if=_is_none)
    firmware: BootFirmware = Field(BootFirmware.BIOS, exclude_if=lambda firmware: firmware is BootFirmware.BIOS)
    login_user: str = Field(LOGIN_USER, pattern=LOGIN_USER_PATTERN, exclude_if=lambda user: user == LOGIN_USER)
    cloud_init: bool = Field(True, exclude_if=bool)
    readiness: Readiness = Field(Readiness.MESSAGE, exclude_if=lambda readiness: readiness is Readiness.MESSAGE)
    readiness_port: int | None = Field(None, ge=1, le=65_535, exclude_if=_is_none)
    disk_bytes_min: Whole | None = Field(None, exclude_if=_is_none)

    @model_validator(mode="after")
    def _has_its_port(self) -> Self:
        if (self.readiness is Readiness.TCP_PORT) != (self.readiness_port is not None):
            raise ValueError("readiness_port belongs to readiness tcp_port, which needs one")
        return self
