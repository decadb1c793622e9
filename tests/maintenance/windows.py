"""Windows that tests commit, their times, and what verification says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.testclient import TestClient

from orchestrator.maintenance.commands.advance import advance_window
from tests.api.calling import Caller, Place, enrol, new_node
from tests.support.public_api import PublicApi

CLAIMS = "select node_id::text, fence from claims where owner_id = %s and closed_at is null"
"""Where the claims of a reservation are, with their fences."""


def at(hours: float) -> str:
    """So many hours from now."""
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def node_of(place: Place) -> str:
    """The name of the place's node as a resource."""
    return f"node:{place.node['id']}"


def slot_of(place: Place, index: int) -> str:
    """The name of a slot of the place's node."""
    return f"slot:{place.node['id']}:{index}"


def body(place: Place, starts: float = 10, ends: float = 12, **members: Any) -> dict[str, Any]:
    """A window on the whole node, from and until so many hours from now."""
    return {
        "resources": [node_of(place)], "starts_at": at(starts), "ends_at": at(ends), "reason": "new firmware", **members,
    }  # fmt: skip


def commit(admin: Caller, place: Place, starts: float = 10, ends: float = 12, **members: Any) -> Any:
    """A committed window."""
    return admin.make("/admin/maintenance", body(place, starts, ends, **members))


def sweep(api: PublicApi, window_id: str) -> Any:
    """What the sweeper does about a window now."""
    assert isinstance(api.admin.http, TestClient)
    assert api.services is not None
    portal = api.admin.http.portal
    assert portal is not None
    return portal.call(advance_window, api.services.context, UUID(window_id))


def rows(api: PublicApi, query: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    return api.database.execute(query.encode(), values).fetchall()


def new_neighbour(api: PublicApi, place: Place) -> str:
    """Another node in the pool of the place."""
    node = new_node(api.admin, place.region)
    enrol(api.admin, node["id"], f"machine-of-{node['name']}")
    api.database.execute("update nodes set online = true where id = %s", (node["id"],))
    return str(node["id"])


def reserve(tenant: Caller, place: Place, gpus: int = 8, starts: float = 9, ends: float = 11) -> Any:
    """A hold of GPUs of the SKU."""
    wanted = {"sku": place.sku, "gpus": gpus, "region": place.region, "count": 1, "holder_id": "h"}
    return tenant.make("/reservations", {**wanted, "starts_at": at(starts), "ends_at": at(ends), "ttl_seconds": 600})
