"""Commits and reads of keys as a tenant sends them, in bytes."""

from __future__ import annotations

import base64
import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from orchestrator.http.services import Services
from tests.api.calling import Caller

_numbers = itertools.count(1)
Member = dict[str, Any]


def b64(raw: bytes) -> str:
    """Standard base64, as bodies carry it."""
    return base64.b64encode(raw).decode()


def b64url(raw: bytes) -> str:
    """Base64url without padding, as paths carry it."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def put(key: bytes, value: bytes) -> Member:
    """Write a key."""
    return {"type": "write", "key": b64(key), "value": b64(value)}


def delete(key: bytes) -> Member:
    """Delete a key."""
    return {"type": "delete", "key": b64(key)}


def clear(begin: bytes, end: bytes) -> Member:
    """Delete a range."""
    return {"type": "range_delete", "begin": b64(begin), "end": b64(end)}


def unchanged(key: bytes, version: int | None = None) -> Member:
    """A point read."""
    return {"type": "point_read", "key": b64(key), **({} if version is None else {"version": version})}


def unchanged_range(begin: bytes, end: bytes, version: int | None = None) -> Member:
    """A range read."""
    read = {"type": "range_read", "begin": b64(begin), "end": b64(end)}
    return read if version is None else {**read, "version": version}


def new_request_id() -> str:
    """A new request_id."""
    return f"request-{next(_numbers)}-{uuid.uuid4().hex}"


@dataclass(frozen=True)
class Keys:
    """The namespace of one caller."""

    caller: Caller

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        """One request to `/v1` + path."""
        headers = {"authorization": f"Bearer {self.caller.key}"}
        return self.caller.http.request(method, f"/v1{path}", json=body, headers=headers, params=query)

    def try_commit(
        self, operations: Sequence[Member] = (), preconditions: Sequence[Member] = (), **members: Any
    ) -> httpx.Response:
        """A commit, whatever comes of it."""
        body = {"operations": list(operations), "preconditions": list(preconditions), **members}
        return self.send("POST", "/commit", body)

    def commit(
        self, operations: Sequence[Member] = (), preconditions: Sequence[Member] = (), **members: Any
    ) -> dict[str, Any]:
        """The answer to a commit that is one."""
        answer = self.try_commit(operations, preconditions, **members)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def committed(self, operations: Sequence[Member] = (), preconditions: Sequence[Member] = (), **members: Any) -> int:
        """The version of a commit that succeeds."""
        told = self.commit(operations, preconditions, **members)
        assert told["status"] == "committed", told
        return int(told["version"])

    def find(self, key: bytes) -> httpx.Response:
        """A read of one key."""
        return self.send("GET", f"/kv/{b64url(key)}")

    def value(self, key: bytes) -> bytes | None:
        """What a key holds."""
        answer = self.find(key)
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        return base64.b64decode(answer.json()["value"])

    def range(self, **query: Any) -> dict[str, Any]:
        """A page of a range."""
        answer = self.send("GET", "/kv", **query)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        return page

    def every(self, limit: int = 500) -> tuple[dict[bytes, bytes], int]:
        """All there is, and the lowest version at which pages of it were read."""
        found: dict[bytes, bytes] = {}
        versions: list[int] = []
        query: dict[str, Any] = {"limit": limit}
        while True:
            page = self.range(**query)
            versions.append(page["read_version"])
            found |= {base64.b64decode(item["key"]): base64.b64decode(item["value"]) for item in page["items"]}
            if page["next_cursor"] is None:
                return found, min(versions)
            query["cursor"] = page["next_cursor"]

    def status(self, request_id: str, min_version: int = 0) -> dict[str, Any]:
        """What became of a commit."""
        answer = self.send("GET", "/status", request_id=request_id, min_version=min_version)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def version(self) -> int:
        """The log's version."""
        return int(self.send("GET", "/version").json()["version"])


def services_of(keys: Keys) -> Services:
    """The parts of the application that a tenant calls."""
    layer: Any = keys.caller.http
    while not hasattr(layer, "_services"):
        layer = getattr(layer, "app", None) or layer._app
    found: Services = layer._services
    return found
