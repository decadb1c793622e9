"""Allocations, one function per path (docs/reference/http-api.md). `tenant_id` is for admin keys only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, write, written
from berth.client.models import Allocation, CreatedAllocation, Page, TimelineEntry
from berth.client.wipe_certificates import WipeCertificate

API = "/api/v1"


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def create_allocation(
    *,
    sku: str | None = None,
    gpus: int | None = None,
    region: str | None = None,
    ssh_key_ids: Sequence[UUID],
    reservation_id: UUID | None = None,
    holder_id: str | None = None,
    ends_at: datetime | None = None,
    image: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    user_data: str | None = None,
    restart_policy: str | None = None,
    idempotency_key: str | None = None,
) -> Call[CreatedAllocation]:
    """Ask for `gpus` GPUs on one node, or, with `reservation_id` and `holder_id`, for what a reservation holds.

    At `ends_at` it is released by itself. Raises `SkuUnavailable` or `QuotaExceeded` when they cannot be had,
    `HolderMismatch`, `InvalidState`, `ReservationNotFound` or `ReservationRetired` for a reservation.
    """
    body = {
        "sku": sku, "gpus": gpus, "region": region, "ssh_key_ids": [str(key) for key in ssh_key_ids], "image": image,
        "name": name, "labels": dict(labels) if labels else None, "user_data": user_data,
        "reservation_id": _text(reservation_id), "holder_id": holder_id, "ends_at": written(ends_at),
        "restart_policy": restart_policy,
    }  # fmt: skip
    return write("POST", f"{API}/allocations", CreatedAllocation, body, idempotency_key)


def list_allocations(
    *,
    state: str | None = None,
    label: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    tenant_id: UUID | None = None,
) -> Call[Page[Allocation]]:
    """The tenant's allocations, newest last; `label` is `key=value`."""
    return read_page(
        f"{API}/allocations",
        Allocation,
        state=state,
        label=label,
        limit=limit,
        cursor=cursor,
        tenant_id=_text(tenant_id),
    )


def get_allocation(allocation_id: UUID, *, tenant_id: UUID | None = None) -> Call[Allocation]:
    """One allocation. Raises `NotFound`."""
    return read(f"{API}/allocations/{allocation_id}", Allocation, tenant_id=_text(tenant_id))


def get_wipe_certificate(allocation_id: UUID, *, tenant_id: UUID | None = None) -> Call[WipeCertificate]:
    """The wipe certificate of a released allocation. Raises `WipeCertificateMissing`, `NotFound`, `Archived`."""
    return read(f"{API}/allocations/{allocation_id}/wipe-certificate", WipeCertificate, tenant_id=_text(tenant_id))


def get_timeline(
    allocation_id: UUID, *, limit: int | None = None, cursor: str | None = None, tenant_id: UUID | None = None
) -> Call[Page[TimelineEntry]]:
    """What happened to an allocation, oldest first."""
    return read_page(
        f"{API}/allocations/{allocation_id}/timeline",
        TimelineEntry,
        limit=limit,
        cursor=cursor,
        tenant_id=_text(tenant_id),
    )


def update_allocation(
    allocation_id: UUID,
    *,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    ends_at: datetime | None = None,
    no_end: bool = False,
    tenant_id: UUID | None = None,
    idempotency_key: str | None = None,
) -> Call[Allocation]:
    """Change the name, the labels or the end; None leaves a member as it is, and `labels` replaces all labels.

    `no_end` removes the end, also with `ends_at`. Raises `InvalidState` if the allocation is released or failed (for another
    end: is being released, or past its end), `WindowInvalid`, and `ResourceBusy` if its units are claimed before the new end.
    """
    body = {"name": name, "labels": None if labels is None else dict(labels), "ends_at": written(ends_at)}
    path = f"{API}/allocations/{allocation_id}"
    call = write("PATCH", path, Allocation, body, idempotency_key, tenant_id=_text(tenant_id))
    return replace(call, body={**(call.body or {}), "ends_at": None}) if no_end else call


def _verb(verb: str, allocation_id: UUID, tenant_id: UUID | None, idempotency_key: str | None) -> Call[Allocation]:
    path = f"{API}/allocations/{allocation_id}/{verb}"
    return write("POST", path, Allocation, None, idempotency_key, tenant_id=_text(tenant_id))


def reboot_allocation(
    allocation_id: UUID, *, tenant_id: UUID | None = None, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Ask for a stop and a start of the guest; its disk stays. The end of the verb is in `guest`.

    Raises `InvalidState` if the allocation is not active, `VerbInProgress` during another verb.
    """
    return write(
        "POST",
        f"{API}/allocations/{allocation_id}/reboot",
        Allocation,
        None,
        idempotency_key,
        tenant_id=_text(tenant_id),
    )


def stop_allocation(
    allocation_id: UUID, *, tenant_id: UUID | None = None, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Ask for a stop of the guest; its units stay the tenant's, and metering goes on. The end of the verb is in `guest`.

    Raises `InvalidState` if the allocation is not active, `VerbInProgress` during another verb.
    """
    return _verb("stop", allocation_id, tenant_id, idempotency_key)


def start_allocation(
    allocation_id: UUID, *, tenant_id: UUID | None = None, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Ask for the start of a stopped guest. The end of the verb is in `guest`.

    Raises `InvalidState` if the allocation is not active, `VerbInProgress` during another verb.
    """
    return write(
        "POST",
        f"{API}/allocations/{allocation_id}/start",
        Allocation,
        None,
        idempotency_key,
        tenant_id=_text(tenant_id),
    )


def rebuild_allocation(
    allocation_id: UUID, *, tenant_id: UUID | None = None, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Ask for a new guest on the same units; everything on its disk is lost. The end of the verb is in `guest`.

    Raises `InvalidState` if the allocation is not active, `VerbInProgress` during another verb.
    """
    return write(
        "POST",
        f"{API}/allocations/{allocation_id}/rebuild",
        Allocation,
        None,
        idempotency_key,
        tenant_id=_text(tenant_id),
    )


def rescue_allocation(
    allocation_id: UUID, *, tenant_id: UUID | None = None, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Ask for the rescue system on a bare-metal machine; its disks are not opened. `start` and `reboot` leave it.

    The end of the verb is in `guest`, with the SSH endpoint and its host key in `guest.rescue`.

    Raises `InvalidState` if the allocation is not active or has no rescue system, `VerbInProgress` during another verb.
    """
    return _verb("rescue", allocation_id, tenant_id, idempotency_key)


def release_allocation(
    allocation_id: UUID, *, tenant_id: UUID | None = None, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Ask for the release (or the cancel) of an allocation; repeating it is harmless. Raises `InvalidState`."""
    path = f"{API}/allocations/{allocation_id}/release"
    return write("POST", path, Allocation, None, idempotency_key, tenant_id=_text(tenant_id))
