"""What an audit row states of the caller of a request: principal, role, tenant, address, user agent, action, object, request id.

Operations carry it to the database as JSON (`operations.caller`), where a trigger writes the row (audit_operation.sql).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from berth.process.json_objects import JsonObject
from orchestrator.http.asgi import Scope
from orchestrator.http.audited.actions import Audited, audited_action
from orchestrator.http.services import source_of
from orchestrator.tenants.principals import Principal

USER_AGENT_LENGTH_MAX: Final = 200


def audited_caller(scope: Scope, principal: Principal, audited: Audited | None = None) -> JsonObject:
    """The members of an audit row that a request determines, from its ASGI scope and authenticated caller; `user` for its detail.

    `audited`: the action, where method and path do not determine it.
    """
    audited = audited or audited_action(method_of(scope), scope["path"])
    caller = {
        "kind": principal.actor.kind.value,
        "id": str(principal.id),
        "role": principal.role,
        "action": audited.action,
        "subject": audited.subject,
        "request": scope["state"].get("request_id"),
    }
    if principal.tenant_id is not None:
        caller["tenant"] = str(principal.tenant_id)
    if principal.subject is not None:
        caller["user"] = principal.subject
    source = source_of(scope)
    if source is not None:
        caller["source"] = source
    for name, value in scope.get("headers", ()):
        if name == b"user-agent":
            caller["agent"] = user_agent(value)
            break
    return caller


def method_of(scope: Scope) -> str:
    """The method of a request; an upgrade to a WebSocket is a GET (RFC 6455)."""
    method: str = scope.get("method", "GET")
    return method


@lru_cache(maxsize=1024)
def user_agent(value: bytes) -> str:
    """The header in printable characters: others are escaped; at most `USER_AGENT_LENGTH_MAX` of them."""
    text = value[:USER_AGENT_LENGTH_MAX].decode("latin-1")
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)[:USER_AGENT_LENGTH_MAX]
