"""The operator's part of the API, one function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, segment, write
from berth.client.hardware.images import Image, ImageStatement
from berth.client.models import Allocation, AuditEntry, DeadLetter, Page, Region, Sku, Tenant, TenantQuotas
from berth.client.node_models import EnrolmentToken, Node

ADMIN = "/api/v1/admin"


def create_tenant(*, name: str, gpus_limit: int | None = None, idempotency_key: str | None = None) -> Call[Tenant]:
    """Make a tenant. Without `gpus_limit` it has the default of the operator's settings. Raises `AlreadyExists`."""
    return write("POST", f"{ADMIN}/tenants", Tenant, {"name": name, "gpus_limit": gpus_limit}, idempotency_key)


def list_tenants(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Tenant]]:
    """All tenants, deleted ones too."""
    return read_page(f"{ADMIN}/tenants", Tenant, limit=limit, cursor=cursor)


def get_tenant(tenant_id: UUID) -> Call[Tenant]:
    """One tenant. Raises `NotFound`."""
    return read(f"{ADMIN}/tenants/{tenant_id}", Tenant)


def set_tenant_state(
    tenant_id: UUID, *, state: Literal["active", "suspended"], idempotency_key: str | None = None
) -> Call[Tenant]:
    """Suspend a tenant (no new allocations) or let it go on. Raises `TenantDeleted`."""
    return write("PATCH", f"{ADMIN}/tenants/{tenant_id}", Tenant, {"state": state}, idempotency_key)


def delete_tenant(tenant_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """Delete a tenant for good; its id and name are never reused. Raises `NotFound`, `TenantInUse` while it holds something."""
    return remove(f"{ADMIN}/tenants/{tenant_id}", idempotency_key)


def set_quota(tenant_id: UUID, *, gpus_limit: int | None, idempotency_key: str | None = None) -> Call[Tenant]:
    """Limit the GPUs a tenant may hold; None lifts the limit. Raises `TenantDeleted`."""
    call = write("PUT", f"{ADMIN}/tenants/{tenant_id}/quota", Tenant, None, idempotency_key)
    return Call(call.method, call.path, call.answer, body={"gpus_limit": gpus_limit}, idempotency_key=idempotency_key)


def set_limits(
    tenant_id: UUID, *, limits: Mapping[str, int | None], idempotency_key: str | None = None
) -> Call[Tenant]:
    """Set limits of a tenant by the names of its quotas; None: the default again. Raises `TenantDeleted`, `Invalid`."""
    call = write("PUT", f"{ADMIN}/tenants/{tenant_id}/quota", Tenant, None, idempotency_key)
    return Call(call.method, call.path, call.answer, body={"limits": dict(limits)}, idempotency_key=idempotency_key)


def get_quotas(tenant_id: UUID) -> Call[TenantQuotas]:
    """The quotas of a tenant, and what it uses of each. Raises `NotFound`."""
    return read(f"{ADMIN}/tenants/{tenant_id}/quota", TenantQuotas)


def put_region(name: str, *, display_name: str, idempotency_key: str | None = None) -> Call[Region]:
    """Make or change a region."""
    return write("PUT", f"{ADMIN}/regions/{name}", Region, {"display_name": display_name}, idempotency_key)


def put_sku(
    name: str,
    *,
    shape: Literal["baremetal", "gpu_slice"],
    gpu_model: str,
    allowed_counts: Sequence[int],
    default_image: str | None = None,
    price_micro_per_gpu_second: int | None = None,
    state: Literal["active", "retired"] | None = None,
    vcpus_per_gpu: int | None = None,
    memory_bytes_per_gpu: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Sku]:
    """Make or change what is sold. The size of guests is fixed when it is made; None: the share that a node gives a slot."""
    body = {
        "shape": shape, "gpu_model": gpu_model, "allowed_counts": list(allowed_counts), "default_image": default_image,
        "price_micro_per_gpu_second": price_micro_per_gpu_second, "state": state,
        # Left out where they are not stated: an orchestrator of the version before refuses unknown members.
        **({} if vcpus_per_gpu is None else {"vcpus_per_gpu": vcpus_per_gpu}),
        **({} if memory_bytes_per_gpu is None else {"memory_bytes_per_gpu": memory_bytes_per_gpu}),
    }  # fmt: skip
    return write("PUT", f"{ADMIN}/skus/{name}", Sku, body, idempotency_key)


def put_image(
    name: str,
    *,
    url: str,
    sha256: str,
    shapes: Sequence[str],
    gpu_models: Sequence[str] | None = None,
    regions: Sequence[str] | None = None,
    state: Literal["active", "retired"] | None = None,
    statement: ImageStatement | None = None,
    idempotency_key: str | None = None,
) -> Call[Image]:
    """Make or change an image; nodes check what they fetch from `url` against `sha256`.

    `statement` replaces what the image states of itself; None keeps it.
    """
    body = {
        "url": url, "sha256": sha256, "shapes": list(shapes), "state": state,
        "gpu_models": None if gpu_models is None else list(gpu_models),
        "regions": None if regions is None else list(regions),
        "statement": None if statement is None else statement.model_dump(exclude_none=True),
    }  # fmt: skip
    return write("PUT", f"{ADMIN}/images/{name}", Image, body, idempotency_key)


def list_all_images(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[Image]]:
    """The images with their URLs, by name; retired ones too."""
    return read_page(f"{ADMIN}/images", Image, limit=limit, cursor=cursor)


def get_image(name: str) -> Call[Image]:
    """One image, also a retired one. Raises `NotFound`."""
    return read(f"{ADMIN}/images/{segment(name)}", Image)


def delete_image(name: str, *, idempotency_key: str | None = None) -> Call[None]:
    """Delete an image. Raises `NotFound`, and `ImageInUse` while something needs it."""
    return remove(f"{ADMIN}/images/{segment(name)}", idempotency_key)


def create_node(
    *,
    name: str,
    region: str,
    gpu_model: str,
    shape: Literal["baremetal", "gpu_slice"],
    slot_count: int | None = None,
    slots_from_topology: bool = False,
    half_slots: int | None = None,
    address: str | None = None,
    faults: Mapping[str, str] | None = None,
    idempotency_key: str | None = None,
) -> Call[Node]:
    """Register a node; its agent enrols with a token from `create_enrolment_token`. Raises `AlreadyExists`.

    Either `slot_count` or `slots_from_topology`: then its slots are made when its topology is approved.
    """
    body = {
        "name": name, "region": region, "gpu_model": gpu_model, "shape": shape, "slot_count": slot_count,
        "half_slots": half_slots, "slots_from_topology": slots_from_topology or None,
        "address": address, "faults": dict(faults) if faults else None,
    }  # fmt: skip
    return write("POST", f"{ADMIN}/nodes", Node, body, idempotency_key)


def list_nodes(
    *, state: str | None = None, region: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Node]]:
    """The fleet, without slots."""
    return read_page(f"{ADMIN}/nodes", Node, state=state, region=region, limit=limit, cursor=cursor)


def get_node(node: UUID | str) -> Call[Node]:
    """One node by id or name, with its slots and their holders. Raises `NotFound`."""
    return read(f"{ADMIN}/nodes/{node}", Node)


def create_enrolment_token(
    node_id: UUID,
    *,
    hardware_id: str | None = None,
    valid_seconds: int | None = None,
    idempotency_key: str | None = None,
) -> Call[EnrolmentToken]:
    """Make a one-time token for a node's agent, bound to `hardware_id` if one is named."""
    body = {"hardware_id": hardware_id, "valid_seconds": valid_seconds}
    return write("POST", f"{ADMIN}/nodes/{node_id}/enrolment-token", EnrolmentToken, body, idempotency_key)


def cordon_node(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Node]:
    """Place nothing new on a node."""
    return write("POST", f"{ADMIN}/nodes/{node_id}/cordon", Node, None, idempotency_key)


def uncordon_node(node_id: UUID, *, idempotency_key: str | None = None) -> Call[Node]:
    """Place on a node again."""
    return write("POST", f"{ADMIN}/nodes/{node_id}/uncordon", Node, None, idempotency_key)


def drain_node(
    node_id: UUID,
    *,
    deadline: datetime | None = None,
    at_deadline: Literal["stay", "release"] | None = None,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Node]:
    """Empty a node: reservations are moved, tenants notified of the deadline. With `release`, allocations end at it."""
    wanted = {
        "deadline": None if deadline is None else deadline.isoformat(), "at_deadline": at_deadline, "reason": reason,
    }  # fmt: skip
    body = {name: value for name, value in wanted.items() if value is not None}
    return write("POST", f"{ADMIN}/nodes/{node_id}/drain", Node, body or None, idempotency_key)


def retire_node(node_id: UUID, *, reason: str, idempotency_key: str | None = None) -> Call[Node]:
    """Take a node out of the fleet for good. Raises `NodeInUse` while anything holds a unit of it."""
    return write("POST", f"{ADMIN}/nodes/{node_id}/retire", Node, {"reason": reason}, idempotency_key)


def set_node_attestation(
    node_id: UUID,
    *,
    policy: str,
    ek_sha256: str | None = None,
    ek_certificate: str | None = None,
    forget_tpm: bool = False,
    idempotency_key: str | None = None,
) -> Call[Node]:
    """Say whether a node proves its TPM (`off`, `offered`, `required`, `pool`), and register that TPM or forget it."""
    body = {
        "policy": policy,
        "ek_sha256": ek_sha256,
        "ek_certificate": ek_certificate,
        "forget_tpm": forget_tpm or None,
    }
    return write("PUT", f"{ADMIN}/nodes/{node_id}/attestation", Node, body, idempotency_key)


def revoke_node_certificates(node_id: UUID, *, reason: str, idempotency_key: str | None = None) -> Call[Node]:
    """Refuse every certificate of a node from now on."""
    path = f"{ADMIN}/nodes/{node_id}/certificates/revoke"
    return write("POST", path, Node, {"reason": reason}, idempotency_key)


def force_release(allocation_id: UUID, *, reason: str, idempotency_key: str | None = None) -> Call[Allocation]:
    """Release any tenant's allocation, on the record."""
    path = f"{ADMIN}/allocations/{allocation_id}/force-release"
    return write("POST", path, Allocation, {"reason": reason}, idempotency_key)


def force_cleanup(
    allocation_id: UUID, *, runtime_verified_absent: bool, reason: str, idempotency_key: str | None = None
) -> Call[Allocation]:
    """Free the units of an ended allocation on the caller's word that nothing is left on them; on the record."""
    path = f"{ADMIN}/allocations/{allocation_id}/force-cleanup"
    body = {"runtime_verified_absent": runtime_verified_absent, "reason": reason}
    return write("POST", path, Allocation, body, idempotency_key)


def list_all_allocations(
    *,
    state: str | None = None,
    label: str | None = None,
    tenant_id: UUID | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Allocation]]:
    """Allocations across tenants, newest last."""
    tenant = None if tenant_id is None else str(tenant_id)
    path = f"{ADMIN}/allocations"
    return read_page(path, Allocation, state=state, label=label, tenant_id=tenant, limit=limit, cursor=cursor)


def get_any_allocation(allocation_id: UUID) -> Call[Allocation]:
    """One allocation, of whichever tenant. Raises `NotFound`, `Archived`."""
    return read(f"{ADMIN}/allocations/{allocation_id}", Allocation)


def list_audit(
    *,
    subject: str | None = None,
    principal: str | None = None,
    tenant_id: UUID | None = None,
    action: str | None = None,
    outcome: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[AuditEntry]]:
    """All audited actions that match, oldest first; with `after`, those with a greater sequence."""
    tenant = None if tenant_id is None else str(tenant_id)
    return read_page(
        f"{ADMIN}/audit", AuditEntry, subject=subject, principal=principal, tenant_id=tenant, action=action, outcome=outcome,
        since=_moment(since), until=_moment(until), after=after, limit=limit, cursor=cursor,
    )  # fmt: skip


def list_own_audit(
    *,
    subject: str | None = None,
    principal: str | None = None,
    action: str | None = None,
    outcome: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[AuditEntry]]:
    """The audited actions of the tenant's principals that match, oldest first; with `after`, those with a greater sequence."""
    return read_page(
        "/api/v1/audit", AuditEntry, subject=subject, principal=principal, action=action, outcome=outcome,
        since=_moment(since), until=_moment(until), after=after, limit=limit, cursor=cursor,
    )  # fmt: skip


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def list_dead_letters(
    *,
    state: Literal["dead", "retried", "discarded"] | None = None,
    consumer: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[Page[DeadLetter]]:
    """Events that a consumer of the log gave up on, oldest first."""
    path = f"{ADMIN}/dead-letters"
    return read_page(path, DeadLetter, state=state, consumer=consumer, limit=limit, cursor=cursor)


def get_dead_letter(dead_letter_id: UUID) -> Call[DeadLetter]:
    """One dead letter. Raises `NotFound`."""
    return read(f"{ADMIN}/dead-letters/{dead_letter_id}", DeadLetter)


def retry_dead_letter(dead_letter_id: UUID, *, idempotency_key: str | None = None) -> Call[DeadLetter]:
    """Have the event handled again. Raises `InvalidState` for one that is settled."""
    return write("POST", f"{ADMIN}/dead-letters/{dead_letter_id}/retry", DeadLetter, None, idempotency_key)


def discard_dead_letter(dead_letter_id: UUID, *, reason: str, idempotency_key: str | None = None) -> Call[DeadLetter]:
    """Discard it: no consumer handles it. Audited. Raises `InvalidState` if it is settled."""
    path = f"{ADMIN}/dead-letters/{dead_letter_id}/discard"
    return write("POST", path, DeadLetter, {"reason": reason}, idempotency_key)
