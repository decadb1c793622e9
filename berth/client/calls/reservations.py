"""Reservations, resources and availability, one function per path. `tenant_id` is for admin keys only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, segment, write, written
from berth.client.models import Availability, Page
from berth.client.reservation_models import Reservation, Resource
from berth.process.json_objects import JsonMapping

API = "/api/v1"


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)


def create_reservation(
    *,
    holder_id: str,
    resources: Sequence[str] | None = None,
    sku: str | None = None,
    gpus: int | None = None,
    region: str | None = None,
    count: int | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    ttl_seconds: int | None = None,
    allocation: JsonMapping | None = None,
    name: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Reservation]:
    """Hold the named resources, all or none, or `count` times `gpus` GPUs of a SKU, for a window.

    Raises `ResourceBusy` or `SkuUnavailable` when they cannot be had, `QuotaExceeded`, `ResourceNotFound`,
    `ResourceOutOfService`, `TtlOutOfRange`, `WindowInvalid`.
    """
    body = {
        "holder_id": holder_id, "resources": None if resources is None else list(resources), "sku": sku, "gpus": gpus,
        "region": region, "count": count, "starts_at": written(starts_at), "ends_at": written(ends_at),
        "ttl_seconds": ttl_seconds, "allocation": None if allocation is None else dict(allocation), "name": name,
    }  # fmt: skip
    return write("POST", f"{API}/reservations", Reservation, body, idempotency_key)


def list_reservations(
    *, state: str | None = None, limit: int | None = None, cursor: str | None = None, tenant_id: UUID | None = None
) -> Call[Page[Reservation]]:
    """The tenant's reservations, newest last."""
    path = f"{API}/reservations"
    return read_page(path, Reservation, state=state, limit=limit, cursor=cursor, tenant_id=_text(tenant_id))


def get_reservation(reservation_id: UUID, *, tenant_id: UUID | None = None) -> Call[Reservation]:
    """One reservation. Raises `ReservationNotFound`, `ReservationRetired`."""
    return read(f"{API}/reservations/{reservation_id}", Reservation, tenant_id=_text(tenant_id))


def confirm_reservation(
    reservation_id: UUID, *, holder_id: str, idempotency_key: str | None = None, tenant_id: UUID | None = None
) -> Call[Reservation]:
    """Make a hold a confirmed window, without a deadline; repeating it is harmless.

    Raises `InvalidState` for one that has ended or expired, `HolderMismatch`, `ReservationNotFound`, `ReservationRetired`.
    """
    path = f"{API}/reservations/{reservation_id}/confirm"
    return write("POST", path, Reservation, {"holder_id": holder_id}, idempotency_key, tenant_id=_text(tenant_id))


def cancel_reservation(
    reservation_id: UUID, *, holder_id: str, idempotency_key: str | None = None, tenant_id: UUID | None = None
) -> Call[Reservation]:
    """Give a hold or a confirmed window back; repeating it is harmless.

    Raises `InvalidState` for one that was used, `HolderMismatch`, `ReservationNotFound`, `ReservationRetired`.
    """
    path = f"{API}/reservations/{reservation_id}/cancel"
    return write("POST", path, Reservation, {"holder_id": holder_id}, idempotency_key, tenant_id=_text(tenant_id))


def list_resources(
    *,
    kind: Literal["node", "slot", "registered"] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Resource]]:
    """Nodes, slots and what operators registered, in the order in which they came."""
    return read_page(f"{API}/resources", Resource, kind=kind, limit=limit, cursor=cursor)


def get_resource(resource_id: str) -> Call[Resource]:
    """One resource: a registered one, `node:<id>` or `slot:<id>:<index>`. Raises `ResourceNotFound`."""
    return read(f"{API}/resources/{segment(resource_id)}", Resource)


def create_resource(resource_id: str, *, idempotency_key: str | None = None) -> Call[Resource]:
    """Register a resource (admin keys only). Raises `AlreadyExists`, `ResourceTableFull`."""
    return write("POST", f"{API}/admin/resources", Resource, {"id": resource_id}, idempotency_key)


def take_resource_out_of_service(
    resource_id: str, *, reason: str, idempotency_key: str | None = None
) -> Call[Resource]:
    """Refuse new holds on a registered resource (admin keys only); a present holder keeps it. Raises `ResourceNotFound`."""
    path = f"{API}/admin/resources/{segment(resource_id)}/out-of-service"
    return write("POST", path, Resource, {"reason": reason}, idempotency_key)


def put_resource_in_service(resource_id: str, *, idempotency_key: str | None = None) -> Call[Resource]:
    """Let a registered resource be held again (admin keys only). Raises `ResourceNotFound`."""
    path = f"{API}/admin/resources/{segment(resource_id)}/in-service"
    return write("POST", path, Resource, None, idempotency_key)


def list_availability(
    *,
    sku: str | None = None,
    region: str | None = None,
    gpus: int | None = None,
    count: int | None = None,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Availability]]:
    """What could be placed now, per SKU and region; with any of the others, in a window: how many, and from when."""
    return read_page(
        f"{API}/availability", Availability, sku=sku, region=region, gpus=gpus, count=count,
        starts_at=written(starts_at), ends_at=written(ends_at), limit=limit, cursor=cursor,
    )  # fmt: skip
