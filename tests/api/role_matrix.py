"""The matrix of routes and roles, as the reference page shows it, and requests that compare a caller with it."""

from __future__ import annotations

import re
import uuid

import httpx
import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from tests.api.calling import Caller
from tests.deploy.deployment import ROOT

FUTURE = 2**62
TENANT_ROLES = ("viewer", "member", "admin", "billing")
OPERATOR_ROLES = ("viewer", "support", "fleet", "finance", "admin")
COLUMNS = [*(("tenant", role) for role in TENANT_ROLES), *(("operator", role) for role in OPERATOR_ROLES)]
ROW = re.compile(r"\| (GET|POST|PUT|PATCH|DELETE|WS) `([^`]+)` \|(.+)\|")


def matrix() -> list[tuple[str, str, dict[tuple[str, str], str]]]:
    """Method, path and cells of each row of the reference page."""
    found = []
    for line in (ROOT / "docs" / "reference" / "access" / "roles.md").read_text().splitlines():
        if row := ROW.fullmatch(line):
            cells = [cell.strip() for cell in row[3].split("|")]
            assert len(cells) == 1 + len(COLUMNS), line
            found.append((row[1], row[2], dict(zip(COLUMNS, cells[1:], strict=True))))
    return found


def scopes_of_routes() -> dict[tuple[str, str], str]:
    """The scope that the reference page names for each method and path; `-` for none."""
    lines = (ROOT / "docs" / "reference" / "access" / "roles.md").read_text().splitlines()
    rows = [row for line in lines if (row := ROW.fullmatch(line))]
    return {(row[1], row[2]): row[3].split("|")[0].strip().strip("`") for row in rows}


def ask(caller: Caller, method: str, path: str) -> httpx.Response:
    """One request to the route; streams are asked for a version that is not there, so that they end."""
    filled = re.sub(r"\{[^}]+\}", str(uuid.uuid4()), path)
    headers = {"authorization": f"Bearer {caller.key}"}
    if method == "WS":
        assert isinstance(caller.http, TestClient)
        with (
            pytest.raises(WebSocketDenialResponse) as denied,
            caller.http.websocket_connect(f"{filled}?after={FUTURE}", headers=headers),
        ):
            raise AssertionError("the version does not exist")
        return denied.value
    query = {"after": FUTURE} if path == "/v1/subscribe" else {}
    body: dict[str, str] | None = None if method == "GET" else {}
    return caller.http.request(method, filled, json=body, headers=headers, params=query)


def differences(caller: Caller, kind: str, role: str) -> list[tuple[str, str, str, int, str | None]]:
    """The routes that answer this caller in another way than the matrix says for its role: cell, status and code."""
    wrong: list[tuple[str, str, str, int, str | None]] = []
    rows = matrix()
    assert len(rows) > 80
    for method, path, cells in rows:
        answer = ask(caller, method, path)
        code = answer.json()["code"] if answer.status_code >= 400 else None
        if cells[kind, role] == "403":
            is_right = (answer.status_code, code) == (403, "role_required")
        elif cells[kind, role] == "-":
            is_right = (answer.status_code, code) == (403, "forbidden")
        else:
            unnamed = code == "forbidden" and "?tenant_id=" in answer.json()["detail"]
            is_right = (answer.status_code not in (401, 403, 405) and code != "internal") or unnamed
        if not is_right:
            wrong.append((method, path, cells[kind, role], answer.status_code, code))
    return wrong
