"""HEAD wherever GET is, CORS and the documentation UI by setting, and the caller's own account."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.documents import public_document
from tests.api.processes import public_process
from tests.support.public_api import PublicApi

ORIGIN = "https://console.example"


def headers_of(caller: Caller) -> dict[str, str]:
    """The caller's credential."""
    return {"authorization": f"Bearer {caller.key}"}


def test_head_answers_as_get_without_a_body(api: PublicApi) -> None:
    """Every GET of the document without parameters in its path, the feed aside, which never ends."""
    document = public_document()
    paths = [path for path, methods in document["paths"].items() if "get" in methods and "{" not in path]
    assert len(paths) > 15
    for path in sorted({*paths} - {"/v1/subscribe", "/v1/status"}):
        got = api.admin.http.get(path, headers=headers_of(api.admin))
        head = api.admin.http.head(path, headers=headers_of(api.admin))
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-type"] == got.headers["content-type"], path


def test_head_of_a_missing_object_is_404_and_of_a_write_405(api: PublicApi) -> None:
    path = "/api/v1/ssh-keys/00000000-0000-7000-8000-000000000000"
    for caller, status in ((new_tenant(api.admin), 404), (api.admin, 403)):
        missing = api.admin.http.head(path, headers=headers_of(caller))
        assert (missing.status_code, missing.content) == (status, b"")
    refused = api.admin.http.head("/v1/commit", headers=headers_of(api.admin))
    assert refused.status_code == 405
    assert refused.headers["allow"] == "POST"
    allowed = api.admin.http.put("/api/v1/skus", headers=headers_of(api.admin))
    assert allowed.headers["allow"] == "GET, HEAD"


def test_head_of_the_feed_ends(database_url: str, tmp_path: Path) -> None:
    """An event stream has no end; its HEAD has headers and then ends."""
    key = insert_admin_key(database_url)
    with public_process(database_url, tmp_path / "api") as http:
        head = http.head("/v1/subscribe", headers={"authorization": f"Bearer {key}"})
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream")


def test_cors_and_the_documentation_ui_are_off_by_default(api: PublicApi) -> None:
    answer = api.admin.http.get("/ok", headers={"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    problem(api.admin.http.options("/ok", headers={"origin": ORIGIN}), 405, "method_not_allowed")
    problem(api.admin.http.get("/docs"), 404, "not_found")


def test_cors_and_the_documentation_ui_by_setting(database_url: str, tmp_path: Path) -> None:
    settings = {"BERTH_CORS_ORIGINS": f'["{ORIGIN}"]', "BERTH_DOCS_UI": "true"}
    with public_process(database_url, tmp_path / "api", settings) as http:
        preflight = _preflight(http, ORIGIN)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == ORIGIN
        assert "idempotency-key" in preflight.headers["access-control-allow-headers"].lower()
        assert _preflight(http, "https://evil.example").status_code == 400
        answer = http.get("/ok", headers={"origin": ORIGIN})
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "berth-version" in answer.headers["access-control-expose-headers"].lower()
        page = http.get("/docs")
        assert page.status_code == 200
        assert re.search("swagger", page.text, re.IGNORECASE)


def _preflight(http: httpx.Client, origin: str) -> httpx.Response:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,idempotency-key"}
    return http.options("/api/v1/allocations", headers={"origin": origin, **asked})


def test_me_is_the_caller(api: PublicApi) -> None:
    tenant = new_tenant(api.admin)
    own = tenant.http.get("/api/v1/me", headers=headers_of(tenant)).json()
    assert (own["role"], own["tenant"]["id"], own["tenant"]["state"]) == ("admin", str(tenant.tenant_id), "active")
    assert own["limits"]["gpus_used"] == 0
    assert own["limits"]["webhooks_max"] > 0
    operator = api.admin.http.get("/api/v1/me", headers=headers_of(api.admin)).json()
    assert (operator["role"], operator["tenant"], operator["limits"]) == ("admin", None, None)
    problem(api.admin.http.get("/api/v1/me"), 401, "unauthenticated")
