"""Users whose token names no tenant, and the invitations by which they become members."""

from __future__ import annotations

from typing import Any

from tests.api.calling import Caller, fresh
from tests.api.tenants.token_api import TokenApi


def user(api: TokenApi, subject: str | None = None) -> Caller:
    """A user whose token names no tenant."""
    return api.with_token(api.issuer.token("first", sub=subject or fresh("user")))


def invited(tenant: Caller, role: str = "member", **members: Any) -> Any:
    """A new invitation."""
    return tenant.make("/invitations", {"role": role, **members})


def accept(caller: Caller, token: str) -> Any:
    """The response to an acceptance."""
    return caller.call("POST", "/invitations/accept", {"token": token})


def joined(api: TokenApi, tenant: Caller, role: str = "member", subject: str | None = None) -> tuple[Caller, Any]:
    """A user that has become a member."""
    caller = user(api, subject)
    answer = accept(caller, invited(tenant, role)["token"])
    assert answer.status_code == 200, answer.text
    return caller, answer.json()
