"""Writes of operators on the catalogue, on nodes and on maintenance windows."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel

from berth.client import AsyncClient
from berth.client.hardware.images import Image
from berth.client.hardware.pools import Pool
from berth.client.maintenance import MaintenanceWindow
from berth.client.models import Region, Sku
from berth.client.node_models import Node, Quarantine
from tests.campaign.clients.writes import Write
from tests.campaign.fleet_history import Deleted, FleetKind

GPU_MODEL = "H100"
SLOTS = 8
REASON = "campaign"
State = Literal["active", "retired"]


def _write(
    kind: FleetKind, key: str, subject: str, send: Callable[[AsyncClient, str], Awaitable[BaseModel]], **said: Any
) -> Write:
    content = json.dumps({"subject": subject, **said}, default=str)
    return Write(kind, key, content, send)


def put_sku(key: str, name: str, image: str, price: int, state: State) -> Write:
    """A SKU of slices with this price and state."""

    async def send(client: AsyncClient, key: str) -> Sku:
        return await client.put_sku(
            name, shape="gpu_slice", gpu_model=GPU_MODEL, allowed_counts=[1, 2], default_image=image,
            price_micro_per_gpu_second=price, state=state, idempotency_key=key,
        )  # fmt: skip

    return _write("put_sku", key, f"skus/{name}", send, price=price, state=state)


def put_image(key: str, name: str, like: Image, regions: Sequence[str] | None, state: State) -> Write:
    """An image with the file of another one."""

    async def send(client: AsyncClient, key: str) -> Image:
        return await client.put_image(
            name,
            url=like.url,
            sha256=like.sha256,
            shapes=like.shapes,
            regions=regions,
            state=state,
            idempotency_key=key,
        )

    return _write("put_image", key, f"images/{name}", send, regions=regions, state=state)


def delete_image(key: str, name: str) -> Write:
    """Delete an image."""

    async def send(client: AsyncClient, key: str) -> Deleted:
        await client.delete_image(name, idempotency_key=key)
        return Deleted()

    return _write("delete_image", key, f"images/{name}", send)


def put_region(key: str, name: str, display_name: str) -> Write:
    """Another display name of a region."""

    async def send(client: AsyncClient, key: str) -> Region:
        return await client.put_region(name, display_name=display_name, idempotency_key=key)

    return _write("put_region", key, f"regions/{name}", send, display_name=display_name)


def set_pool(key: str, pool_id: int, policy: Literal["off", "offered"]) -> Write:
    """Another attestation policy of a pool."""

    async def send(client: AsyncClient, key: str) -> Pool:
        return await client.set_pool_attestation(pool_id, policy=policy, idempotency_key=key)

    return _write("set_pool", key, f"pools/{pool_id}", send, policy=policy)


def create_node(key: str, name: str, region: str) -> Write:
    """Register a node of slices."""

    async def send(client: AsyncClient, key: str) -> Node:
        return await client.create_node(
            name=name, region=region, gpu_model=GPU_MODEL, shape="gpu_slice", slot_count=SLOTS, address="127.0.0.1",
            idempotency_key=key,
        )  # fmt: skip

    return _write("create_node", key, f"nodes/{name}", send, region=region)


def cordon(key: str, node_id: UUID) -> Write:
    """Place nothing new on a node."""

    async def send(client: AsyncClient, key: str) -> Node:
        return await client.cordon_node(node_id, idempotency_key=key)

    return _write("cordon", key, f"nodes/{node_id}", send)


def uncordon(key: str, node_id: UUID) -> Write:
    """Place on a node again."""

    async def send(client: AsyncClient, key: str) -> Node:
        return await client.uncordon_node(node_id, idempotency_key=key)

    return _write("uncordon", key, f"nodes/{node_id}", send)


def drain(key: str, node_id: UUID, deadline: datetime, at_deadline: Literal["stay", "release"]) -> Write:
    """Empty a node. Sent again after the deadline it is invalid, whatever became of it before."""

    async def send(client: AsyncClient, key: str) -> Node:
        return await client.drain_node(
            node_id, deadline=deadline, at_deadline=at_deadline, reason=REASON, idempotency_key=key
        )

    content = json.dumps({"subject": f"nodes/{node_id}", "deadline": deadline, "at_deadline": at_deadline}, default=str)
    return Write("drain", key, content, send, hopeless=frozenset({"invalid"}))


def retire(key: str, node_id: UUID) -> Write:
    """Take a node out of the fleet for good."""

    async def send(client: AsyncClient, key: str) -> Node:
        return await client.retire_node(node_id, reason=REASON, idempotency_key=key)

    return _write("retire", key, f"nodes/{node_id}", send)


def revoke(key: str, node_id: UUID) -> Write:
    """Refuse every certificate of a node."""

    async def send(client: AsyncClient, key: str) -> Node:
        return await client.revoke_node_certificates(node_id, reason=REASON, idempotency_key=key)

    return _write("revoke", key, f"nodes/{node_id}", send)


def quarantine(key: str, node_id: UUID, slot: int) -> Write:
    """Take a slot out of service."""

    async def send(client: AsyncClient, key: str) -> Quarantine:
        return await client.quarantine_slot(node_id, slot, reason=REASON, idempotency_key=key)

    return _write("quarantine", key, f"nodes/{node_id}", send, slot=slot)


def return_slot(key: str, node_id: UUID, slot: int) -> Write:
    """Put a slot into service again."""

    async def send(client: AsyncClient, key: str) -> Quarantine:
        return await client.return_slot(node_id, slot, note=REASON, idempotency_key=key)

    return _write("return_slot", key, f"nodes/{node_id}", send, slot=slot)


def commit_window(
    key: str, resources: Sequence[str], starts_at: datetime, ends_at: datetime, allocations: Literal["notify", "refuse"],
    reservations: Literal["move", "refuse"],
) -> Write:  # fmt: skip
    """Commit a maintenance window."""

    async def send(client: AsyncClient, key: str) -> MaintenanceWindow:
        return await client.commit_maintenance(
            resources=resources, starts_at=starts_at, ends_at=ends_at, reason=REASON, allocations=allocations,
            reservations=reservations, idempotency_key=key,
        )  # fmt: skip

    return _write(
        "commit_window", key, "maintenance", send, resources=resources, starts_at=starts_at, ends_at=ends_at,
        allocations=allocations, reservations=reservations,
    )  # fmt: skip


def cancel_window(key: str, window_id: UUID) -> Write:
    """Cancel a scheduled window."""

    async def send(client: AsyncClient, key: str) -> MaintenanceWindow:
        return await client.cancel_maintenance(window_id, idempotency_key=key)

    return _write("cancel_window", key, f"maintenance/{window_id}", send)


def end_window(key: str, window_id: UUID) -> Write:
    """End an active window before its time."""

    async def send(client: AsyncClient, key: str) -> MaintenanceWindow:
        return await client.end_maintenance(window_id, idempotency_key=key)

    return _write("end_window", key, f"maintenance/{window_id}", send)
