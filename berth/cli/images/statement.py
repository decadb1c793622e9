"""Options of `berth image put` and `import` for what an image states of itself."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from berth.client import ImageStatement


class Format(StrEnum):
    """The format of the file."""

    QCOW2 = "qcow2"
    RAW = "raw"


class Firmware(StrEnum):
    """The firmware that the image boots with."""

    BIOS = "bios"
    UEFI = "uefi"


class Readiness(StrEnum):
    """What shows that a guest has started."""

    MESSAGE = "message"
    SSH = "ssh"
    TCP_PORT = "tcp_port"


FormatOption = Annotated[Format | None, typer.Option("--format", help="format of the file; default: not stated")]
FirmwareOption = Annotated[Firmware | None, typer.Option(help="firmware that it boots with; default: bios")]
LoginUserOption = Annotated[str | None, typer.Option(help="user that tenants log in as; default: tenant")]
CloudInitOption = Annotated[
    bool | None, typer.Option("--cloud-init/--no-cloud-init", help="whether it has cloud-init; default: it has")
]
ReadinessOption = Annotated[
    Readiness | None, typer.Option(help="what shows that a guest has started; default: message, without cloud-init ssh")
]
ReadinessPortOption = Annotated[
    int | None, typer.Option(help="the guest's port of readiness tcp_port", min=1, max=65_535)
]
DiskBytesMinOption = Annotated[int | None, typer.Option(help="smallest disk that it boots from", min=1)]
GpuDriverOption = Annotated[str | None, typer.Option(help="version of the GPU driver in it, such as 570.124.06")]
FabricManagerOption = Annotated[
    str | None, typer.Option(help="version of the fabric manager in it: that of the GPU driver")
]


def read_statement(**given: Any) -> ImageStatement | None:
    """The statement with the options that were given; None if none was."""
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        return None
    if values.get("cloud_init") is False and "readiness" not in values:
        values["readiness"] = Readiness.TCP_PORT if "readiness_port" in values else Readiness.SSH
    # Loaded by the command alone: start-up stays light.
    from berth.client import ImageStatement

    return ImageStatement.model_validate({name: getattr(value, "value", value) for name, value in values.items()})
