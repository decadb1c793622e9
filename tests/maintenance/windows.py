"""Windows that tests commit, their times, and what verification says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.testclient import TestClient

from orchestrator.maintenance.commands.advance import advance_window
from tests.api.calling import Caller, Place
from tests.support.public_api import PublicApi


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
