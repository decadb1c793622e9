"""Audit entries in the form of OCSF 1.3.0 (Open Cybersecurity Schema Framework), class API Activity (6003).

https://schema.ocsf.io/1.3.0/classes/api_activity. What OCSF has no attribute for is in `unmapped`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from berth.client.models import AuditEntry, AuditPrincipal
from berth.process.json_objects import JsonObject

OCSF_VERSION: Final = "1.3.0"
CATEGORY, CLASS = 6, 6003
CREATE, READ, UPDATE, DELETE = 1, 2, 3, 4
INFORMATIONAL: Final = 1
SUCCESS, FAILURE = 1, 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ACTIVITIES: Final = {
    "create": CREATE, "hold": CREATE, "enrol": CREATE, "create_enrolment_token": CREATE, "read": READ, "delete": DELETE,
    "revoke": DELETE, "discard": DELETE, "forget": DELETE, "orphan_destroy": DELETE,
}  # fmt: skip
_OTHER_USER: Final = 99
_USERS: Final = {"admin": 2, "system": 3, "worker": 3, "billing": 3, "node": 3, "tenant": 4}
"""OCSF's type of a user by the kind of a principal: administrator, system, service account."""


def ocsf_event(entry: AuditEntry) -> JsonObject:
    """The entry as an event of class 6003, without attributes that have no value. Times are milliseconds since 1970 (UTC)."""
    activity = _ACTIVITIES.get(entry.action.rpartition(".")[2], UPDATE)
    failed = entry.status is not None and entry.status >= 400
    kind, _, name = entry.subject.partition("/")
    return _without_none(
        {
            "class_uid": CLASS, "category_uid": CATEGORY, "activity_id": activity, "type_uid": CLASS * 100 + activity,
            "severity_id": INFORMATIONAL, "status_id": FAILURE if failed else SUCCESS, "status_code": entry.code,
            "time": _milliseconds(entry.at),
            "metadata": {
                "version": OCSF_VERSION,
                "product": {"name": "Berth", "vendor_name": "Berth"},
                "log_name": "audit", "uid": str(entry.sequence), "sequence": entry.sequence,
                "logged_time": _milliseconds(entry.recorded_at),
                "correlation_uid": None if entry.correlation_id is None else str(entry.correlation_id),
            },
            "actor": {"user": _user(entry)},
            "src_endpoint": {"ip": entry.source} if entry.source else {"name": entry.principal.kind},
            "http_request": {"user_agent": entry.user_agent} if entry.user_agent else None,
            "http_response": None if entry.status is None else {"code": entry.status},
            "api": {
                "operation": entry.action, "service": {"name": "berth"},
                "request": {"uid": entry.request_id} if entry.request_id else None,
                "response": {"code": entry.status, "error": entry.code} if failed else None,
            },
            "resources": [{"type": kind, "uid": name or kind}],
            "unmapped": {
                "operation_key": entry.operation_key, "detail": entry.detail, "id": entry.id, "at": entry.at.isoformat(),
                "recorded_at": entry.recorded_at.isoformat(), "hash": entry.hash,
            },
        }
    )  # fmt: skip


def _user(entry: AuditEntry) -> JsonObject:
    principal: AuditPrincipal = entry.principal
    return {
        "uid": principal.id, "type": principal.kind, "type_id": _USERS.get(principal.kind, _OTHER_USER),
        "name": user if isinstance(user := entry.detail.get("user"), str) else None,
        "groups": [{"name": principal.role}] if principal.role else None,
        "org": {"uid": str(entry.tenant_id)} if entry.tenant_id else None,
    }  # fmt: skip


def _milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _without_none(value: JsonObject) -> JsonObject:
    """The members that have a value, also of the objects inside; `unmapped.detail` remains as it is."""
    return {
        name: _without_none(member) if isinstance(member, dict) and name != "detail" else member
        for name, member in value.items()
        if member is not None
    }
