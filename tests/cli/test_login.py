"""`berth login`: the device flow against a real issuer, the stored token, its renewal, and `berth logout`."""

from __future__ import annotations

import json
import shlex
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from berth.cli.access import issuer as issuers
from berth.cli.access.login import live_token
from berth.cli.access.logins import locked_logins, read_login, store_login
from berth.cli.endings import Refused
from berth.cli.main import app
from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.api.processes import public_process
from tests.api.tenants.device_issuer import CLIENT, PENDING, TOKEN, DeviceIssuer, running_device_issuer
from tests.api.tenants.issuer import AUDIENCE, DISCOVERY_PATH, send
from tests.berth.scripted import Reply, ScriptedServer
from tests.databases import copied_database

ID = "01900000-0000-7000-8000-000000000002"
ME = Reply(body={"principal_id": ID, "role": "member", "tenant": None, "limits": None})
EMPTY = Reply(body={"items": [], "next_cursor": None})


@pytest.fixture
def issuer() -> Iterator[DeviceIssuer]:
    with running_device_issuer() as issuer:
        yield issuer


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's directory of this test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BERTH_API_KEY", raising=False)
    return tmp_path / "config" / "berth"


def run(address: str, line: str, **settings: str) -> Result:
    """A command against this API, without a key."""
    return CliRunner().invoke(app, shlex.split(line), env={"BERTH_API_URL": address, "COLUMNS": "300", **settings})


def log_in(server: ScriptedServer, issuer: DeviceIssuer, more: str = "") -> Result:
    return run(server.address, f"login --issuer {issuer.url} --client-id {CLIENT} {more}")


def shown(done: Result, issuer: DeviceIssuer) -> str:
    """What the command printed, which holds no code or token but the user's."""
    printed = done.output + done.stderr
    assert not [secret for secret in issuer.secrets if secret in printed]
    return printed


def error_of(done: Result) -> Any:
    """The code of a command that failed with `--output json`."""
    return json.loads(done.stdout)["error"]["code"]


def test_a_login_prints_address_and_code_and_stores_the_token_for_its_user_alone(
    issuer: DeviceIssuer, config: Path
) -> None:
    issuer.script = [PENDING, PENDING]
    with ScriptedServer([ME, EMPTY]) as server:
        done = log_in(server, issuer)
        assert done.exit_code == 0, done.output
        printed = shown(done, issuer)
        assert f"open {issuer.address}/open on any device and enter the code WDJB-MJHT" in printed
        assert "with the role member" in printed
        assert issuer.polls() == 3
        (stored,) = [path for path in config.iterdir() if path.suffix == ".json"]
        assert (stat.S_IMODE(stored.stat().st_mode), stat.S_IMODE(config.stat().st_mode)) == (0o600, 0o700)
        listed = run(server.address, "sku list")
        assert listed.exit_code == 0, listed.output
        shown(listed, issuer)
        sent = {asked.headers["authorization"] for asked in server.asked}
        assert sent == {f"Bearer {issuer.secrets[-1]}"}


def test_what_is_asked_for(issuer: DeviceIssuer) -> None:
    with ScriptedServer([ME]) as server:
        log_in(server, issuer, "--scope 'openid gpus' --audience berth")
    asked = [form for _, form in issuer.forms]
    assert asked[0] == {"client_id": CLIENT, "scope": "openid gpus", "audience": "berth"}
    assert asked[1] == {"client_id": CLIENT, "grant_type": issuers.DEVICE_GRANT, "device_code": issuer.device_code}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("access_denied", "login_denied"),
        ("expired_token", "login_expired"),
        ("server_error", "login_failed"),
        ("<b>", "login_failed"),
    ],
)
def test_a_login_that_is_denied_or_fails_stores_nothing(
    issuer: DeviceIssuer, config: Path, error: str, code: str
) -> None:
    issuer.script = [PENDING, error]
    with ScriptedServer([ME]) as server:
        done = log_in(server, issuer, "--output json")
        assert (done.exit_code, error_of(done), issuer.polls()) == (1, code, 2)
        assert "<b>" not in shown(done, issuer)
        assert server.asked == []
    assert not (config / "logins.json").exists()


def flow(issuer: DeviceIssuer, pauses: list[float]) -> issuers.Tokens:
    """The polling with a clock that only its pauses advance."""
    with httpx.Client() as http:
        endpoints = issuers.discover(http, issuer.url)
        code = issuers.begin(http, endpoints, CLIENT, "openid", None)
        return issuers.poll(http, endpoints, CLIENT, code, pause=pauses.append, now=lambda: sum(pauses))


def test_slow_down_makes_every_later_pause_longer(issuer: DeviceIssuer) -> None:
    issuer.device_members = {"interval": 2, "expires_in": 600}
    issuer.script = [PENDING, "slow_down", PENDING, "slow_down", PENDING]
    pauses: list[float] = []
    flow(issuer, pauses)
    assert pauses == [2, 2, 7, 7, 12, 12]


def test_without_an_interval_it_is_five_seconds_and_the_code_ends_by_itself(issuer: DeviceIssuer) -> None:
    issuer.device_members, issuer.script = {"expires_in": 21}, [PENDING] * 50
    pauses: list[float] = []
    with pytest.raises(Refused, match="expired") as refused:
        flow(issuer, pauses)
    assert (refused.value.code, pauses) == ("login_expired", [5, 5, 5, 5])


def test_a_connection_that_fails_makes_the_pauses_longer(issuer: DeviceIssuer) -> None:
    issuer.device_members = {"interval": 1, "expires_in": 8}
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            issuer.stop()

    issuer.script = [PENDING] * 50
    with httpx.Client() as http:
        endpoints = issuers.discover(http, issuer.url)
        code = issuers.begin(http, endpoints, CLIENT, "openid", None)
        with pytest.raises(Refused, match="expired"):
            issuers.poll(http, endpoints, CLIENT, code, pause=pause, now=lambda: sum(pauses))
    assert pauses == [1, 1, 2]


@pytest.mark.parametrize(
    "issuer_url",
    ["http://login.example", "ftp://127.0.0.1", "https://user@login.example", "login.example", "https://["],
)
def test_an_issuer_over_plain_http_beyond_loopback_is_not_asked(issuer_url: str) -> None:
    with ScriptedServer([ME]) as server:
        done = run(server.address, f"login --issuer '{issuer_url}' --client-id x --output json")
    assert (done.exit_code, error_of(done)) == (1, "login_address")


@pytest.mark.parametrize("endpoint", ["device_authorization_endpoint", "token_endpoint", "revocation_endpoint"])
def test_endpoints_over_plain_http_beyond_loopback_are_not_used(issuer: DeviceIssuer, endpoint: str) -> None:
    issuer.published_endpoints = {endpoint: "http://198.51.100.1/x"}
    with ScriptedServer([ME]) as server:
        assert error_of(log_in(server, issuer, "--output json")) == "login_address"
    assert issuer.forms == []


def test_an_issuer_without_devices_and_another_issuers_document(issuer: DeviceIssuer) -> None:
    large = json.dumps({**issuer.document(DISCOVERY_PATH), "pad": "x" * 300_000}).encode()
    with ScriptedServer([ME]) as server:
        issuer.published_endpoints = {"device_authorization_endpoint": None}
        assert error_of(log_in(server, issuer, "--output json")) == "login_unsupported"
        issuer.published_endpoints = {"issuer": "https://another.example"}
        assert error_of(log_in(server, issuer, "--output json")) == "login_failed"
        issuer.answers[DISCOVERY_PATH] = lambda request: send(request, 302, b"{}", location="http://198.51.100.1/")
        assert error_of(log_in(server, issuer, "--output json")) == "login_failed"
        issuer.answers[DISCOVERY_PATH] = lambda request: send(request, 200, large)
        assert "262,144 bytes" in shown(log_in(server, issuer), issuer)
        assert (
            error_of(run(server.address, f"login --issuer {issuer.url} --client-id other --output json"))
            == "login_failed"
        )
        issuer.stop()
        done = log_in(server, issuer, "--output json")
        assert (done.exit_code, error_of(done)) == (3, "issuer_unreachable")
        assert run(server.address, "login --output json").exit_code == 2


@pytest.mark.parametrize(
    "members", [{"access_token": "opaque"}, {"access_token": None}, {"token_type": "mac"}, {"access_token": "a.b.c\n"}]
)
def test_a_token_that_the_api_could_not_read_is_refused(issuer: DeviceIssuer, config: Path, members: Any) -> None:
    issuer.members = members
    with ScriptedServer([ME]) as server:
        assert error_of(log_in(server, issuer, "--output json")) == "login_unusable"
    assert not (config / "logins.json").exists()


def test_a_token_that_the_api_refuses_is_not_stored(issuer: DeviceIssuer, config: Path) -> None:
    refusal = Reply(401, {"status": 401, "code": "token_invalid", "detail": "another audience", "outcome": "not_done"})
    with ScriptedServer([refusal]) as server:
        done = log_in(server, issuer, "--output json")
        assert (done.exit_code, error_of(done)) == (1, "token_invalid")
        shown(done, issuer)
    assert not (config / "logins.json").exists()


def age(address: str, seconds_left: float) -> None:
    """Let the stored access token end in so many seconds."""
    found = read_login(address)
    assert found is not None
    with locked_logins():
        store_login(address, replace(found, expires_at=time.time() + seconds_left))


def test_a_token_is_renewed_before_it_ends_and_once_for_all_processes(issuer: DeviceIssuer) -> None:
    with ScriptedServer([ME, EMPTY]) as server:
        log_in(server, issuer)
        first = read_login(server.address)
        assert first is not None
        age(server.address, 5)
        with ThreadPoolExecutor(8) as pool:
            tokens = set(pool.map(live_token, [server.address] * 8))
        renewed = read_login(server.address)
        assert renewed is not None
        assert tokens == {renewed.access_token}
        assert renewed.access_token != first.access_token
        assert renewed.refresh_token != first.refresh_token
        assert [form["grant_type"] for path, form in issuer.forms if path == TOKEN].count("refresh_token") == 1
        done = run(server.address, "sku list")
        assert done.exit_code == 0, done.output
        assert server.asked[-1].headers["authorization"] == f"Bearer {renewed.access_token}"


def test_a_refused_renewal_ends_the_login(issuer: DeviceIssuer, config: Path) -> None:
    with ScriptedServer([ME, EMPTY]) as server:
        log_in(server, issuer)
        age(server.address, 5)
        issuer.refresh_tokens.clear()
        done = run(server.address, "sku list --output json")
        assert (done.exit_code, error_of(done)) == (1, "login_expired")
        shown(done, issuer)
        assert len(server.asked) == 1, "nothing was sent after the login"
    assert not (config / "logins.json").exists()


def test_while_the_issuer_is_away_a_token_serves_to_its_end(issuer: DeviceIssuer) -> None:
    with ScriptedServer([ME, EMPTY]) as server:
        log_in(server, issuer)
        issuer.stop()
        age(server.address, 20)
        assert run(server.address, "sku list").exit_code == 0
        age(server.address, -1)
        done = run(server.address, "sku list --output json")
        assert (done.exit_code, error_of(done)) == (3, "issuer_unreachable")


def test_a_token_goes_to_its_own_api_and_a_key_comes_first(issuer: DeviceIssuer) -> None:
    with ScriptedServer([ME, EMPTY]) as server, ScriptedServer([EMPTY]) as other:
        log_in(server, issuer)
        assert error_of(run(other.address, "sku list --output json")) == "no_key"
        assert other.asked == []
        run(server.address, "sku list", BERTH_API_KEY="berth_aaaaaaaa_key")
        assert server.asked[-1].headers["authorization"] == "Bearer berth_aaaaaaaa_key"


def test_a_file_that_others_may_read_or_that_is_damaged_is_not_used(issuer: DeviceIssuer, config: Path) -> None:
    with ScriptedServer([ME, EMPTY]) as server:
        log_in(server, issuer)
        stored = config / "logins.json"
        stored.chmod(0o644)
        assert error_of(run(server.address, "sku list --output json")) == "login_exposed"
        stored.chmod(0o600)
        for text in ("{", "[]", json.dumps({server.address: {}}), json.dumps({server.address: 1})):
            stored.write_text(text)
            assert error_of(run(server.address, "sku list --output json")) == "login_damaged"
        assert len(server.asked) == 1


def test_a_logout_revokes_the_token_and_removes_it(issuer: DeviceIssuer, config: Path) -> None:
    with ScriptedServer([ME]) as server:
        log_in(server, issuer)
        done = run(server.address, "logout --output json")
        assert json.loads(done.stdout) == {"api_url": server.address, "logged_out": True, "revoked": True}
        assert issuer.refresh_tokens == set()
        assert not (config / "logins.json").exists()
        assert json.loads(run(server.address, "logout --output json").stdout)["logged_out"] is False
        issuer.script = []
        log_in(server, issuer)
        issuer.stop()
        assert "did not revoke" in shown(run(server.address, "logout"), issuer)
        assert read_login(server.address) is None


def test_a_user_logs_in_to_a_running_api(
    issuer: DeviceIssuer, postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path
) -> None:
    settings = {
        "BERTH_OIDC_ISSUER": issuer.url, "BERTH_OIDC_AUDIENCE": AUDIENCE, "BERTH_OIDC_ROLES": '{"gpu-users": "member"}',
    }  # fmt: skip
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path / "api", settings) as http,
    ):
        tenant = new_tenant(Caller(http, insert_admin_key(url)))
        issuer.claims_of_tokens = {"berth_tenant": tenant.tenant_id, "berth_role": "gpu-users", "sub": "ann@acme"}
        address = str(http.base_url)
        done = run(address, f"login --issuer {issuer.url} --client-id {CLIENT} --output json")
        assert json.loads(done.stdout)["role"] == "member", done.output
        assert run(address, "alloc list").exit_code == 0
        assert error_of(run(address, "key list --output json")) == "role_required"
        log = (tmp_path / "api" / "api.log").read_text()
        assert not [secret for secret in issuer.secrets if secret in log]


def test_a_user_without_a_tenant_logs_in_by_its_invitation(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path, issuer: DeviceIssuer, config: Path
) -> None:
    settings = {"BERTH_OIDC_ISSUER": issuer.url, "BERTH_OIDC_AUDIENCE": AUDIENCE}
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, tmp_path / "api", settings) as http,
    ):
        tenant = new_tenant(Caller(http, insert_admin_key(url)))
        invitation = tenant.make("/invitations", {"role": "viewer"})["token"]
        issuer.claims_of_tokens = {"sub": "vic@acme"}
        line = f"login --issuer {issuer.url} --client-id {CLIENT} --output json"
        address = str(http.base_url)
        assert error_of(run(address, line)) == "token_invalid"
        assert not list(config.glob("*")), "nothing is stored of a login that is refused"
        done = run(address, line, BERTH_INVITATION_TOKEN=invitation)
        assert json.loads(done.stdout)["role"] == "viewer", done.output
        assert invitation not in shown(done, issuer)
        assert run(address, "alloc list").exit_code == 0
        assert error_of(run(address, "key list --output json")) == "role_required"
