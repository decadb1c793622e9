"""How the tests of the audit read its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.testclient import TestClient

from tests.support.public_api import PublicApi

_ROWS = """
select principal_kind, principal_id, role, tenant_id::text, source, user_agent, action, subject, status, code, operation_key,
       request_id, detail, correlation_id::text from audit where id > %s order by id
"""


@dataclass(frozen=True)
class Row:
    """A row of the audit."""

    kind: str
    principal: str
    role: str | None
    tenant_id: str | None
    source: str | None
    user_agent: str | None
    action: str
    subject: str
    status: int | None
    code: str
    operation_key: str | None
    request_id: str | None
    detail: dict[str, Any]
    correlation_id: str | None


def newest(api: PublicApi) -> int:
    """The newest id of the audit."""
    row = api.database.execute("select coalesce(max(id), 0) from audit").fetchone()
    assert row is not None
    number = row[0]
    assert isinstance(number, int)
    return number


def rows_after(api: PublicApi, after: int) -> list[Row]:
    """The rows with a greater id, in the order of their ids, those that the application had queued included."""
    assert api.services is not None
    assert isinstance(api.admin.http, TestClient)
    assert api.admin.http.portal is not None
    api.admin.http.portal.call(api.services.recorder.flush)
    return [Row(*row) for row in api.database.execute(_ROWS, (after,)).fetchall()]  # type: ignore[arg-type]
