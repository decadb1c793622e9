"""The command line: help everywhere, errors as one sentence with a stable exit code, JSON that stays JSON."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from typer.testing import CliRunner, Result

from berth.cli import session
from berth.cli.main import app
from berth.local.servers import LocalPostgres, free_port
from tests.api.calling import insert_admin_key, ssh_key
from tests.api.processes import public_process
from tests.berth.commands import assert_one_sentence, berth
from tests.berth.scripted import LOST, Reply, ScriptedServer, problem
from tests.databases import copied_database

RUNNER = CliRunner()


def command_paths() -> list[tuple[str, ...]]:
    """Every group and command, by name."""
    found: list[tuple[str, ...]] = []

    def walk(command: Any, path: tuple[str, ...]) -> None:
        found.append(path)
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*path, name))

    walk(typer.main.get_command(app), ())
    return found


COMMANDS = command_paths()
LISTS = ["alloc list --tenant all", "node list", "tenant list", "key list", "sku list", "image list",
         "region list"]  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the settings of the environment that runs the tests, and change to a directory without a stack."""
    for name in [name for name in os.environ if name.startswith("BERTH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def run(line: str, **settings: str) -> Result:
    """One command line, in this process."""
    return RUNNER.invoke(app, shlex.split(line), env=settings)


def against(server: str, line: str, key: str = "berth_aaaaaaaa_key") -> Result:
    """One command line against an API."""
    return run(line, BERTH_API_URL=server, BERTH_API_KEY=key)


def answered(server: str, line: str, key: str) -> Any:
    """The JSON that one successful command line against an API prints."""
    result = against(server, f"{line} --output json", key)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_program_has_the_commands_that_the_manual_names() -> None:
    names = {" ".join(path) for path in COMMANDS}
    assert {"up", "demo", "verify", "doctor", "migrate", "alloc create", "alloc wait", "alloc release", "node list",
            "force-release", "admin-key create"} <= names  # fmt: skip


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "berth")
def test_help(path: tuple[str, ...]) -> None:
    result = RUNNER.invoke(app, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output
    assert result.stderr == ""


def test_help_of_the_program_itself() -> None:
    done = berth("--help")
    assert done.returncode == 0, done.stderr
    assert "Exit codes:" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "no-such-command", "alloc no-such", "alloc list --no-such-option", "alloc show not-a-uuid", "alloc create",
        "alloc wait 01900000-0000-7000-8000-000000000002 --state asleep", "up --agents 65", "up --port 0",
        "verify --output xml", "key create name", "key create name --role support --tenant acme",
        "alloc create --sku s --gpus 0 --region r", "alloc list --tenant ''", "key list --tenant ' '",
        "events tail --type nonsense",
    ],
)  # fmt: skip
def test_wrong_usage(line: str) -> None:
    result = against("http://127.0.0.1:1", line)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""


def test_without_any_address_the_error_names_the_settings() -> None:
    result = run("alloc list")
    assert result.exit_code == 3
    assert "berth up" in result.stderr
    assert "BERTH_API_URL" in result.stderr


def test_an_address_without_a_key() -> None:
    result = run("alloc list", BERTH_API_URL="http://127.0.0.1:1")
    assert (result.exit_code, "BERTH_API_KEY" in result.stderr) == (1, True)


@pytest.mark.full
def test_an_unreachable_api() -> None:
    port = free_port()
    settings = {"BERTH_API_URL": f"http://127.0.0.1:{port}", "BERTH_API_KEY": "berth_aaaaaaaa_key"}
    said = assert_one_sentence(berth("sku", "list", **settings), 3, "cannot reach the API", str(port))
    assert "berth doctor" in said


@pytest.mark.parametrize(("line", "code"), [("verify", 2), ("migrate", 3), ("admin-key create --name first", 3)])
def test_an_unreachable_database(line: str, code: int) -> None:
    result = run(line, BERTH_DATABASE_URL=f"postgresql://x@127.0.0.1:{free_port()}/x")
    assert result.exit_code == code, result.output
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("reply", "exit_code", "code"),
    [
        (problem(401, "unauthenticated"), 1, "unauthenticated"),
        (problem(403, "forbidden"), 1, "forbidden"),
        (problem(404, "not_found"), 1, "not_found"),
        (problem(503, "database_unavailable", retry_after="60"), 3, "database_unavailable"),
        (problem(503, "overloaded", retry_after="60"), 3, "overloaded"),
        (LOST, 4, "outcome_unknown"),
        (problem(422, "invalid", errors=[{"field": "name", "message": "too long"}]), 1, "invalid"),
        (Reply(200, {"what": "is this"}), 1, "unreadable_answer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_refusal_of_the_api_has_an_exit_code(
    reply: Reply, exit_code: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "RETRY_SECONDS", 0.3)  # the lost response is retried for that long, twice
    with ScriptedServer([reply]) as server:
        text = against(server.address, "tenant create acme")
        as_json = against(server.address, "tenant create acme --output json")
    assert text.exit_code == as_json.exit_code == exit_code, text.output
    assert text.stdout == ""
    assert text.stderr.startswith("berth: ")
    assert "Traceback" not in text.stderr
    error = json.loads(as_json.stdout)["error"]
    assert error["code"] == code
    assert error["detail"]
    assert as_json.stderr == ""
    if exit_code == 4:
        assert error["idempotency_key"] in server.keys
        assert error["outcome"] == "unknown"


def test_a_wait_that_times_out_has_its_own_exit_code() -> None:
    shown = {
        "allocation_id": str(uuid.uuid4()), "tenant_id": str(uuid.uuid4()), "status": "requested", "sku": "s",
        "shape": "gpu_slice", "gpu_model": "H100", "gpus": 1, "region": "r", "image": "i", "row_version": 1,
        "correlation_id": str(uuid.uuid4()), "requested_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    with ScriptedServer([Reply(200, shown)]) as server:
        result = against(server.address, f"alloc wait {shown['allocation_id']} --timeout 0 --output json")
    assert result.exit_code == 5, result.output
    assert json.loads(result.stdout)["error"]["code"] == "wait_timeout"


@pytest.fixture(scope="module")
def api(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str, str]]:
    """The address of a real API, an admin key, and its database."""
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path_factory.mktemp("cli")) as http,
    ):
        yield str(http.base_url), insert_admin_key(url), url


@pytest.mark.parametrize("line", LISTS)
def test_an_empty_list(api: tuple[str, str, str], line: str) -> None:
    address, key, _ = api
    text, as_json = against(address, line, key), against(address, f"{line} --output json", key)
    assert text.exit_code == as_json.exit_code == 0, text.output + as_json.output
    assert isinstance(json.loads(as_json.stdout)["items"], list)
    assert text.stdout.strip()


def test_create_and_show(api: tuple[str, str, str], tmp_path: Path) -> None:
    address, admin, _ = api

    def made(line: str, key: str = admin) -> Any:
        return answered(address, line, key)

    tenant = made("tenant create 'a [b]c[/b] tenant' --gpus-limit 4")
    assert tenant["gpus_limit"] == 4
    key = made("key create k --tenant 'a [b]c[/b] tenant'")
    assert key["tenant_id"] == tenant["id"]
    (tmp_path / "id.pub").write_text(ssh_key() + "\n")
    made(f"ssh-key add laptop {tmp_path / 'id.pub'}", key["key"])
    assert [entry["name"] for entry in made("ssh-key list", key["key"])["items"]] == ["laptop"]
    # Names of people are data: nothing in them is markup.
    assert "a [b]c[/b] tenant" in against(address, "tenant list", admin).stdout

    gone = uuid.uuid4()
    unknown = against(address, f"alloc show {gone}", key["key"])
    assert (unknown.exit_code, len(unknown.stderr.strip().splitlines())) == (1, 1)
    assert "--tenant" in unknown.stderr
    forbidden = against(address, "tenant list", key["key"])
    assert forbidden.exit_code == 1
    assert "admin key" in forbidden.stderr
    wrong = against(address, "sku list", "berth_aaaaaaaa_wrong")
    assert wrong.exit_code == 1
    assert "BERTH_API_KEY" in wrong.stderr
    unnamed = against(address, "alloc list", admin)
    assert unnamed.exit_code == 1
    assert unnamed.stderr.strip().endswith("name it with --tenant")
    assert "?" not in unnamed.stderr, "query parameters are for programs"
    for line in ("key create k", "key list", "alloc list"):
        absent = against(address, f"{line} --tenant absent", admin)
        assert (absent.exit_code, "no tenant named absent" in absent.stderr) == (1, True)
        unknown = against(address, f"{line} --tenant {gone}", admin)
        assert (unknown.exit_code, f"no tenant {gone}" in unknown.stderr) == (1, True)

    assert made(f"key revoke {key['id']}")["revoked"] is True
    assert against(address, "sku list", key["key"]).exit_code == 1


def test_the_audit_of_operators_and_of_a_tenant(api: tuple[str, str, str]) -> None:
    address, admin, _ = api

    def made(line: str, key: str = admin) -> Any:
        return answered(address, line, key)

    tenant = made("tenant create audited")
    mine = made("key create own --tenant audited")
    auditor = made("key create auditor --role viewer")
    of_all = made("audit list --action tenant.create", auditor["key"])["items"]
    assert f"tenants/{tenant['id']}" in [entry["subject"] for entry in of_all]
    assert made("audit list --action tenant.create", mine["key"])["items"] == []


def test_a_private_key_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    with ScriptedServer([Reply(200, {})]) as server:
        result = against(server.address, f"ssh-key add laptop {tmp_path / 'id'}")
    assert result.exit_code == 2
    assert ".pub" in result.stderr
    assert server.asked == []


def test_verify(api: tuple[str, str, str]) -> None:
    url = api[2]
    kept = run("verify --output json", BERTH_DATABASE_URL=url)
    assert kept.exit_code == 0, kept.output
    told = json.loads(kept.stdout)
    assert told["kept"] is True
    assert [check["promise"] for check in told["checks"]] == [
        "P1", "P2", "P2 reservations", "P3", "P4", "P5", "P6", "login data", "claims", "wipe certificates", "networks",
        "maintenance", "P7", "P8", "P8 reservations", "P9",
        "P13", "units", "fit", "quota", "counts", "billing", "tenants", "archive", "audit",
    ]  # fmt: skip
    assert all(check["violations"] == [] and check["more"] == 0 for check in told["checks"])

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update log_head set version = version + 1")
        try:
            text = run("verify", BERTH_DATABASE_URL=url)
            as_json = run("verify --output json", BERTH_DATABASE_URL=url)
        finally:
            connection.execute("update log_head set version = version - 1")
    assert text.exit_code == as_json.exit_code == 1
    assert "VIOLATED" in text.stdout
    assert text.stderr.strip() == "berth: violated: P3"
    assert json.loads(as_json.stdout)["kept"] is False


def test_verify_counts_the_violations_that_it_does_not_print(api: tuple[str, str, str]) -> None:
    url = api[2]
    plant = "insert into outbox (event_type, correlation_id, subject, payload, occurred_at) select 'other', uuidv7(),"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(plant + " 'x/1', '{}', now() - interval '1 hour' from generate_series(1, 25)")
        connection.execute("select log_advance(1000)")
        connection.execute("update log set event_id = uuidv7(), prev_version = 1 where event_type = 'other'")
        try:
            text = run("verify", BERTH_DATABASE_URL=url)
            told = json.loads(run("verify --output json", BERTH_DATABASE_URL=url).stdout)
        finally:
            connection.execute("update log set prev_version = 0 where event_type = 'other'")
    assert text.exit_code == 1
    (check,) = [check for check in told["checks"] if not check["kept"]]
    assert (len(check["violations"]), check["more"]) == (20, 5)
    assert "    and 5 more" in text.stdout.splitlines()


def test_verify_has_its_own_exit_code_for_an_unreachable_server(api: tuple[str, str, str]) -> None:
    nowhere = f"nats://127.0.0.1:{free_port()}"
    result = run("verify", BERTH_DATABASE_URL=api[2], BERTH_NATS_URL=nowhere)
    assert result.exit_code == 2
    assert nowhere in result.stderr
    assert run("verify").exit_code == 2


def test_verify_uses_the_deployments_bounds(api: tuple[str, str, str]) -> None:
    url = api[2]
    with psycopg.connect(url, autocommit=True) as connection:
        (task_id,) = connection.execute(
            "insert into node_tasks (id, node_id, node_epoch, type, fence, envelope, not_before, expires_at) values"
            " (uuidv7(), uuidv7(), 1, 'diag.health_probe', 1, '{}', now(), now() - interval '5 minutes') returning id"
        ).fetchone() or (None,)
        connection.execute("select setval('fences', greatest(2, (select last_value from fences)))")
        try:
            assert "is overdue" in run("verify", BERTH_DATABASE_URL=url).stdout
            patient = run("verify", BERTH_DATABASE_URL=url, BERTH_SWEEP_GRACE_SECONDS="600")
        finally:
            connection.execute("delete from node_tasks where id = %s", (task_id,))
    assert patient.exit_code == 0, patient.stdout


def test_the_first_admin_key_works(api: tuple[str, str, str]) -> None:
    address, _, url = api
    result = run("admin-key create --name first --output json", BERTH_DATABASE_URL=url)
    assert result.exit_code == 0, result.output
    assert against(address, "tenant list", json.loads(result.stdout)["key"]).exit_code == 0


def test_an_empty_database_is_reported_with_the_command_to_migrate(postgres_server: LocalPostgres) -> None:
    name = f"empty_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
    result = run("verify", BERTH_DATABASE_URL=postgres_server.url(name))
    # Not 1: that would say that a promise is broken.
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "schema" in result.stderr


@pytest.mark.parametrize(
    "wanted",
    ["nonsense", "", "provisioning", "PROVISIONING.ACTIVE", "provisioning.>.requested", "provisioning.active.>",
     "node.*.*", ".", "> "],
)  # fmt: skip
def test_an_unknown_event_type_is_refused_with_the_known_ones(wanted: str) -> None:
    result = run(f"events tail --type {shlex.quote(wanted)}")
    assert result.exit_code == 2
    (sentence,) = result.stderr.splitlines()
    assert repr(wanted) in sentence
    assert all(known in sentence for known in ("provisioning.requested", "task.finished", "node.offline"))


@pytest.mark.parametrize(
    "wanted", ["provisioning.active", "provisioning.>", "provisioning.*.completed", "*.offline", ">", "*.*"]
)
def test_known_types_and_patterns_are_accepted(wanted: str) -> None:
    result = run(f"events tail --type '{wanted}'")
    assert (result.exit_code, "no NATS is known" in result.stderr) == (3, True)
