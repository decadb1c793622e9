"""Lists of accepted firmware, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from berth.client.calls.call import Call, read_page, remove, write
from berth.client.hardware.firmware import FirmwareList
from berth.client.models import Page
from berth.process.json_objects import JsonMapping

LISTS = "/api/v1/admin/firmware-lists"


def put_firmware_list(
    *, vendor: str, product: str, components: Sequence[JsonMapping], idempotency_key: str | None = None
) -> Call[FirmwareList]:
    """Set the accepted firmware of a model: `component`, `versions` and perhaps `model` of each. Replaces the list before."""
    body = {"vendor": vendor, "product": product, "components": [dict(one) for one in components]}
    return write("PUT", LISTS, FirmwareList, body, idempotency_key)


def list_firmware_lists(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[FirmwareList]]:
    """The lists of accepted firmware."""
    return read_page(LISTS, FirmwareList, limit=limit, cursor=cursor)


def delete_firmware_list(list_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Remove a list. Raises `NotFound`."""
    return remove(f"{LISTS}/{list_id}", idempotency_key)
