"""What an image states of itself. Nodes check what they can; the rest is what its publisher says."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import RowMapping

from berth.process.json_objects import JsonObject
from node_agent.wire.images import LOGIN_USER, BootFirmware, Readiness


@dataclass(frozen=True, slots=True)
class ImageStatement:
    """The statement; the defaults are what an image without one means. Sizes are bytes.

    `format` and `disk_bytes_min` of None: not stated, nodes accept any. `cloud_init`: the guest applies the NoCloud seed.
    """

    format: str | None = None
    firmware: str = BootFirmware.BIOS.value
    login_user: str = LOGIN_USER
    cloud_init: bool = True
    readiness: str = Readiness.MESSAGE.value
    readiness_port: int | None = None
    disk_bytes_min: int | None = None
    size_bytes: int | None = None
    gpu_driver_version: str | None = None
    fabric_manager_version: str | None = None


STATED = tuple(ImageStatement.__slots__)
"""The columns of `images` that hold the statement."""


def with_statement(row: RowMapping) -> JsonObject:
    """The members of a row of `images`, with those of the statement as one."""
    members: JsonObject = dict(row)
    statement = ImageStatement(**{name: members.pop(name) for name in STATED})
    return {**members, "statement": statement}
