"""What a tenant, a node or a server wrote moves no cursor, hides no text and starts no line of an operator's terminal."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from berth.cli.main import app
from berth.local.servers import LocalPostgres
from berth.process.logs import configure_logging
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem, ssh_key
from tests.api.documents import public_document
from tests.api.processes import public_process
from tests.berth.scripted import Reply, ScriptedServer
from tests.berth.scripted import problem as refusal
from tests.databases import copied_database

ID = "01900000-0000-7000-8000-000000000002"
NOW = "2026-01-01T00:00:00.000000Z"
HOSTILE = {
    "clears the screen": "\x1b[2J",
    "clears the screen in one byte": "\x9b2J",
    "rubs out": "\x7f\x08",
    "turns text round": "\u202etxt.exe",
    "isolates text": "\u2066a\u2069",
    "starts a line": "a\u2028b",
    "marks a direction": "\u200f\u061c",
}


DOCUMENT = public_document()
NOT_SHOWN = {
    "user_data": "only the machine that it starts reads it",
    "leader_id": "compared, and neither stored nor returned",
    "token": "compared with a hash",
}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def texts_of(schema: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every text in a body, with its place; enumerations, ids and times are none."""
    schema = resolved(schema)
    for one in [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
        yield from texts_of(one, where)
    for name, one in schema.get("properties", {}).items():
        yield from texts_of(one, f"{where}.{name}")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from texts_of(schema["additionalProperties"], f"{where}.value")
        yield from texts_of({"type": "string", **resolved(schema["propertyNames"])}, f"{where}.name")
    if schema.get("type") == "array":
        yield from texts_of(schema["items"], f"{where}[]")
    is_text = schema.get("type") == "string" and not {"enum", "const"} & schema.keys()
    if is_text and schema.get("format") not in ("uuid", "date-time"):
        yield where, schema


TEXTS = {
    where: schema
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if "requestBody" in operation
    for where, schema in texts_of(
        operation["requestBody"]["content"]["application/json"]["schema"], f"{method.upper()} {path} "
    )
    if where.rpartition(".")[2] not in NOT_SHOWN
}
"""Every text that a request may bring and that something shows later, generated from the OpenAPI document."""


def test_the_document_has_texts() -> None:
    assert "POST /api/v1/allocations .name" in TEXTS
    assert "POST /api/v1/allocations .labels.value" in TEXTS
    assert len(TEXTS) > 40


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_of_a_request_may_contain_it(text: str) -> None:
    accepting = [
        where
        for where, schema in TEXTS.items()
        if any(
            "pattern" not in schema or re.search(schema["pattern"], f"a{sign}a")
            for sign in text
            if not sign.isprintable()
        )
    ]
    assert accepting == []


@pytest.fixture(scope="module")
def tenant(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path_factory.mktemp("api")) as http,
    ):
        yield new_tenant(Caller(http, insert_admin_key(url)))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_name_is_created_with_it(tenant: Caller, text: str) -> None:
    for path, body, member in (
        ("/ssh-keys", {"name": f"n{text}", "public_key": ssh_key()}, "name"),
        ("/ssh-keys", {"name": "n", "public_key": f"{ssh_key()}{text}"}, "public_key"),
        ("/webhooks", {"url": "https://hooks.example.com/", "description": f"d{text}"}, "description"),
    ):
        refused = problem(tenant.call("POST", path, body), 422, "invalid")
        assert [found["field"] for found in refused["errors"]] == [member]


def shown(server: ScriptedServer, line: str) -> str:
    """What the command writes to the terminal, errors included."""
    settings = {"BERTH_API_URL": server.address, "BERTH_API_KEY": "berth_aaaaaaaa_key", "COLUMNS": "200"}
    return CliRunner().invoke(app, shlex.split(line), env=settings).output


def texts_in(value: Any) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in texts_in(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("output", ["text", "json"])
def test_what_a_server_sends_is_shown_as_escapes(text: str, output: str) -> None:
    name = f"before{text}\nafter"
    tenant = {
        "id": ID,
        "name": name,
        "state": "active",
        "gpus_limit": 1,
        "gpus_used": 0,
        "created_at": NOW,
        "row_version": 1,
    }
    replies = {
        "tenant list": Reply(body={"items": [tenant], "next_cursor": None}),
        "tenant create x": Reply(status=201, body=tenant),
        "ssh-key list": refusal(409, "invalid_state", detail=name),
    }
    for line, reply in replies.items():
        with ScriptedServer([reply]) as server:
            printed = shown(server, f"{line} --output {output}")
        assert "before" in printed
        assert "after" in printed
        assert all(sign.isprintable() for sign in printed.replace("\n", "")), printed
        assert "before" in next(row for row in printed.split("\n") if "after" in row), "the text stays on its line"
        if output == "json":
            assert name in texts_in(json.loads(printed)), "it parses to the text that was sent"


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Logging as it was before, for the tests after this one."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:], root.level = handlers, level


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_log_line_has_it_as_escapes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure_logging()
    structlog.get_logger("test").warning("node_reported", detail=text)
    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["detail"] == text
