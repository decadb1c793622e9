"""Retention policies over HTTP."""

from __future__ import annotations

from typing import Any

from tests.api.calling import Caller


def path(policy_id: str = "") -> str:
    """Where a policy is; the client's prefix is the API's, and this is beside it."""
    return f"/v1/retention/{policy_id}".rstrip("/")


def send(caller: Caller, method: str, policy_id: str = "", body: Any = None, *, key: str | None = None) -> Any:
    """One request."""
    headers = {"authorization": f"Bearer {caller.key}"} | ({} if key is None else {"idempotency-key": key})
    return caller.http.request(method, path(policy_id), json=body, headers=headers)


def put(caller: Caller, policy_id: str, version: object, *, key: str | None = None) -> Any:
    """Ask for a policy."""
    return send(caller, "PUT", policy_id, {"prevent_truncate": version}, key=key)
