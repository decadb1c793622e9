"""GPUs and disks by serial number, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, write
from berth.client.hardware.pieces import Hardware, HardwareEntry, HardwarePlace, Repair
from berth.client.models import Page

HARDWARE = "/api/v1/admin/hardware"
REPAIRS = "/api/v1/admin/repairs"


def list_hardware(
    *,
    node_id: UUID | None = None,
    kind: Literal["gpu", "disk"] | None = None,
    contested: bool | None = None,
    missing: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[HardwarePlace]]:
    """GPUs and disks with their nodes, by serial number. Raises `NotFound` for an unknown node."""
    return read_page(
        HARDWARE, HardwarePlace, node_id=None if node_id is None else str(node_id), kind=kind,
        contested="true" if contested else None, missing="true" if missing else None, limit=limit, cursor=cursor,
    )  # fmt: skip


def get_hardware(serial: str) -> Call[Hardware]:
    """One GPU or disk: where it is, and its open repair. Raises `NotFound`."""
    return read(f"{HARDWARE}/{quote(serial, safe='')}", Hardware)


def list_hardware_history(
    serial: str, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[HardwareEntry]]:
    """What happened to a GPU or disk, at every node that had it, newest first. Raises `NotFound`."""
    return read_page(f"{HARDWARE}/{quote(serial, safe='')}/history", HardwareEntry, limit=limit, cursor=cursor)


def list_repairs(
    *, serial: str | None = None, every: bool | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Repair]]:
    """Open repairs, oldest first; with `every`, also closed ones."""
    return read_page(REPAIRS, Repair, serial=serial, every="true" if every else None, limit=limit, cursor=cursor)


def get_repair(repair_id: UUID) -> Call[Repair]:
    """One repair. Raises `NotFound`."""
    return read(f"{REPAIRS}/{repair_id}", Repair)


def open_repair(serial: str, *, reason: str, idempotency_key: str | None = None) -> Call[Repair]:
    """Open a repair. Raises `NotFound`, and `InvalidState` if the piece has an open one."""
    return write("POST", REPAIRS, Repair, {"serial": serial, "reason": reason}, idempotency_key)


def close_repair(repair_id: UUID, *, result: str, idempotency_key: str | None = None) -> Call[Repair]:
    """Close a repair. Raises `NotFound`, and `InvalidState` if it is closed already."""
    return write("POST", f"{REPAIRS}/{repair_id}/close", Repair, {"result": result}, idempotency_key)
