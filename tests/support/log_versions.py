"""The newest version of the log, as a caller reads it."""

from __future__ import annotations

from typing import Any

from tests.api.calling import Caller, fresh


def version(caller: Caller) -> dict[str, Any]:
    """The answer to `GET /v1/version`."""
    answer = caller.http.get("/v1/version", headers={"authorization": f"Bearer {caller.key}"})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document.keys() == {"version", "leader_id"}
    return document


def registered(admin: Caller) -> str:
    """A write with one event: a resource; its id."""
    made: str = admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    return made
