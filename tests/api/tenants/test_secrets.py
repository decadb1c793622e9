"""No secret of a run is in a log line or, in the clear, in the database; sealed ones open only under their caller's key."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from berth.local.servers import LocalPostgres
from orchestrator.operations.sealing import Sealer
from orchestrator.webhooks.keys import WebhookKeys, WebhookKeyUnreadable
from tests.api.calling import Caller, fresh, insert_admin_key, new_node, new_place, new_region, one_gpu, signing_request
from tests.api.processes import public_process
from tests.api.tenants.issuer import ADMIN_ROLE, AUDIENCE, Issuer, running_issuer
from tests.databases import copied_database
from tests.keyvalue.committing import Keys, put
from tests.log.notified import as_browser, last_word, notified
from tests.log.streaming import refused as refused_stream
from tests.support.foreign import bearer


@dataclass
class Run:
    """A running API, and every secret that it received or issued; those of `stored` may be in the database as they are."""

    admin: Caller
    database: psycopg.Connection[Any]
    log: Path
    issuer: Issuer
    secrets: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)

    def secret(self, text: str, *, stored: bool = False) -> str:
        """Remember it, and its part behind a public prefix."""
        (self.stored if stored else self.secrets).update({text, *self._parts(text)})
        return text

    @staticmethod
    def _parts(text: str) -> set[str]:
        if text.startswith("berth_"):
            return {text[15:]}
        if text.startswith("whsec_"):
            return {text.removeprefix("whsec_")}
        if text.startswith("enrol2."):
            return {text.split(".")[2]}  # before it is the pin of a CA, which is public
        return set(text.split(".")[1:]) if text.count(".") == 2 else set()

    def write(self, caller: Caller, method: str, path: str, body: Any = None, member: str | None = None) -> Any:
        """A write, sent twice under one key; the secret in its answer is remembered."""
        key = fresh("write")
        first = caller.call(method, path, body, key=key)
        assert first.status_code < 300, first.text
        again = caller.call(method, path, body, key=key)
        assert again.content == first.content
        self.paths.add(f"/api/v1{path}")
        made = first.json() if first.content else None
        if member is not None:
            assert made is not None
            self.secret(made[member])
            operation = caller.call("GET", f"/operations/{key}")
            assert operation.json()["result"] == made, "the secret itself, not its sealed text"
            assert {one.headers["cache-control"] for one in (first, again, operation)} == {"no-store"}
        return made


@pytest.fixture(scope="module")
def run(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """One process with an issuer of tokens."""
    directory = tmp_path_factory.mktemp("secrets")
    with running_issuer() as issuer:
        settings = {
            "BERTH_OIDC_ISSUER": issuer.url, "BERTH_OIDC_AUDIENCE": AUDIENCE, "BERTH_OIDC_ADMIN_ROLE": ADMIN_ROLE,
        }  # fmt: skip
        with (
            copied_database(postgres_server, migrated_template) as url,
            public_process(url, directory, settings) as http,
            psycopg.connect(url, autocommit=True) as database,
        ):
            key = insert_admin_key(url)
            made = Run(Caller(http, key), database, directory / "api.log", issuer)
            made.secret(key)
            yield made


def write_everything(run: Run) -> None:
    """Every kind of write that receives or returns a secret, each also repeated."""
    admin = run.admin
    tenant_id = run.write(admin, "POST", "/admin/tenants", {"name": fresh("tenant")})["id"]
    for role, more in (("tenant", {"tenant_id": tenant_id}), ("admin", {})):
        made = run.write(admin, "POST", "/admin/api-keys", {"name": "k", "role": role, **more}, member="key")
        if role == "tenant":
            tenant = Caller(admin.http, made["key"], tenant_id)
    token = run.secret(run.issuer.token("first", berth_role=ADMIN_ROLE))
    operator = Caller(admin.http, token)
    run.write(operator, "POST", "/admin/api-keys", {"name": "by-token", "role": "admin"}, member="key")
    own = Caller(admin.http, run.secret(run.issuer.token("first", berth_tenant=tenant_id)))
    url = f"https://hooks.example.com/x?token={run.secret(secrets.token_hex(16), stored=True)}"
    for caller in (tenant, own, admin):
        hook = run.write(caller, "POST", "/webhooks", {"url": url}, member="secret")
        run.write(caller, "POST", f"/webhooks/{hook['id']}/rotate", {"overlap_seconds": 60}, member="secret")
        run.write(caller, "POST", "/webhooks", {"url": url, "signing": "ed25519"})
    node = new_node(admin, new_region(admin))
    enrolment = run.write(admin, "POST", f"/admin/nodes/{node['id']}/enrolment-token", {}, member="token")["token"]
    enroll(run, enrolment)
    place = new_place(admin, run.database)
    user_data = run.secret(secrets.token_hex(16), stored=True)
    create = {**one_gpu(tenant, place), "user_data": user_data}
    run.write(tenant, "POST", "/allocations", create)
    hold = {"sku": place.sku, "gpus": 1, "region": place.region, "count": 1, "holder_id": "h"}
    run.write(tenant, "POST", "/reservations", {**hold, "allocation": {**_start(create), "user_data": user_data}})
    held = run.write(tenant, "POST", "/reservations", hold)["reservation_id"]
    turned = {**_start(create), "reservation_id": held, "holder_id": "h", "user_data": user_data}
    run.write(tenant, "POST", "/allocations", turned)
    value = secrets.token_bytes(24)
    run.secret(base64.b64encode(value).decode(), stored=True)
    Keys(tenant).committed([put(b"key", value)])


def _start(create: dict[str, Any]) -> dict[str, Any]:
    return {"ssh_key_ids": create["ssh_key_ids"]}


def enroll(run: Run, token: str) -> None:
    """Enrol a node with this token, whatever comes of it."""
    body = {"token": token, "hardware_id": "machine-1", "csr_pem": signing_request()}
    Caller(run.admin.http, None).call("POST", "/nodes/enroll", body)


def send_wrongly(run: Run) -> None:
    """Requests with secrets that are refused: unknown credentials, wrong places, malformed bodies."""
    unknown = run.secret(f"berth_abcdefgh_{secrets.token_urlsafe(24)}")
    forged = run.secret(run.issuer.token("first", berth_role=ADMIN_ROLE, aud="another"))
    for credential in (unknown, forged):
        stranger = Caller(run.admin.http, credential)
        assert stranger.call("POST", "/webhooks", {"url": "https://x.example"}).status_code == 401
        refused_stream(Caller(run.admin.http, None), access_token=credential)
        refused_stream(stranger)
        with pytest.raises(Exception, match="401"):
            notified(stranger)
        with as_browser(stranger) as socket:
            assert last_word(socket)[0] == 4401
    secret = run.secret(secrets.token_hex(16))
    enroll(run, run.secret(secrets.token_urlsafe(32)))
    admin = run.admin
    for method, path, body in (
        ("POST", "/nodes/enroll", {"token": secret, "hardware_id": 7}),
        ("POST", "/webhooks", {"url": f"ftp://u:{secret}@x.example/{secret}"}),
        ("POST", "/webhooks", {"url": "https://x.example", "secret": secret}),
        ("POST", "/admin/api-keys", {"name": "k", "role": "admin", "key": secret}),
        ("POST", "/allocations", {"user_data": secret, "gpus": "x"}),
        ("POST", "/admin/api-keys", secret),
    ):
        for query in ({}, {"access_token": secret}):
            answer = admin.call(method, path, body, **query)
            assert 400 <= answer.status_code < 500, answer.text


def fail_in_the_database(run: Run) -> None:
    """Writes that end in an unforeseen failure: a traceback is logged."""
    tenant_id = run.admin.make("/admin/tenants", {"name": fresh("tenant")})["id"]
    made = run.admin.make("/admin/api-keys", {"name": "k", "role": "tenant", "tenant_id": tenant_id})
    tenant = Caller(run.admin.http, run.secret(made["key"]))
    create = one_gpu(tenant, new_place(run.admin, run.database))
    run.database.execute(
        "create function planted() returns trigger language plpgsql as $$ begin raise exception 'planted'; end $$;"
    )
    tables = ("api_keys", "webhooks", "allocations", "kv_keys")
    for table in tables:
        run.database.execute(
            f"create trigger planted before insert or update on {table} for each row execute function planted()".encode()
        )
    try:
        value = run.secret(base64.b64encode(secrets.token_bytes(24)).decode())
        secret = run.secret(secrets.token_hex(16))
        commit = {"operations": [{"type": "write", "key": "a2V5", "value": value}]}
        for caller, path, body in (
            (run.admin, "/api/v1/admin/api-keys", {"name": "k", "role": "admin"}),
            (tenant, "/api/v1/webhooks", {"url": f"https://x.example/?t={secret}"}),
            (tenant, "/api/v1/allocations", {**create, "user_data": secret}),
            (tenant, "/v1/commit", commit),
        ):
            # The process closes the connection of a request that failed so.
            answer = httpx.post(f"{run.admin.http.base_url}{path}", json=body, headers=bearer(caller), timeout=60)
            assert answer.status_code == 500, answer.text
    finally:
        for table in tables:
            run.database.execute(f"drop trigger planted on {table}".encode())


def test_no_log_line_and_no_row_has_a_secret_of_the_run(run: Run) -> None:
    write_everything(run)
    send_wrongly(run)
    fail_in_the_database(run)
    text = run.log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    logged = {line.get("path") for line in lines}
    assert run.paths <= logged, "every write has its log line"
    assert any("planted" in line.get("exception", "") for line in lines), "tracebacks were logged"
    assert len(run.secrets) > 25
    for secret in run.secrets | run.stored:
        assert secret not in text, next(line for line in text.splitlines() if secret in line)[:500]
    rows = every_row(run.database)
    for secret in run.secrets:
        assert secret not in rows, f"a secret of {len(secret)} characters is in the database"


def every_row(database: psycopg.Connection[Any]) -> str:
    """All rows of all tables as JSON."""
    names = database.execute(
        "select c.oid::regclass::text from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'"
    ).fetchall()
    found = [
        database.execute(f"select coalesce(json_agg(t)::text, '') from {name} t".encode()).fetchone()
        for (name,) in names
    ]
    return "\n".join(row[0] for row in found if row is not None)


def stored_secret(run: Run, key: str, member: str) -> str:
    """The sealed member of the answer that is stored under this idempotency key."""
    row = run.database.execute("select body from operations where key = %s", (key,)).fetchone()
    assert row is not None
    return str(json.loads(row[0])[member])


def test_a_stored_secret_opens_under_the_key_that_asked_for_it_and_no_other(run: Run) -> None:
    tenant = run.admin.make("/admin/tenants", {"name": fresh("tenant")})["id"]
    node = new_node(run.admin, new_region(run.admin))["id"]
    rival = run.admin.make("/admin/api-keys", {"name": "rival", "role": "admin"})["key"]
    for path, body, member in (
        ("/admin/api-keys", {"name": "k", "role": "tenant", "tenant_id": tenant}, "key"),
        (f"/admin/nodes/{node}/enrolment-token", {}, "token"),
        ("/webhooks", {"url": "https://hooks.example.com/x"}, "secret"),
    ):
        key = fresh("sealed")
        secret = run.admin.call("POST", path, body, key=key).json()[member]
        sealed = stored_secret(run, key, member)
        assert secret not in sealed
        assert Sealer(str(run.admin.key)).open(sealed) == secret
        for other in (rival, "", str(run.admin.key)[:-1], secret):
            with pytest.raises(InvalidTag):
                Sealer(other).open(sealed)


def test_a_webhooks_stored_key_opens_under_its_webhook_key_and_its_own_id_only() -> None:
    sealing_key, webhook = secrets.token_bytes(32), uuid4()
    keys = WebhookKeys([sealing_key])
    sealed = keys.seal(webhook, "secret")
    assert keys.open(webhook, sealed) == "secret"
    stored = base64.b64decode(sealed.removeprefix(keys.prefix))
    assert AESGCM(sealing_key).decrypt(stored[:12], stored[12:], webhook.bytes) == b"secret"
    assert keys.seal(webhook, "secret") != sealed, "each has its own nonce"
    raw = base64.b64decode(sealed.removeprefix(keys.prefix))
    altered = keys.prefix + base64.b64encode(bytes([raw[0] ^ 1]) + raw[1:]).decode()
    others = WebhookKeys([secrets.token_bytes(32)])
    for opener, id_, text in ((others, webhook, sealed), (keys, UUID(int=1), sealed), (keys, webhook, altered)):
        with pytest.raises(WebhookKeyUnreadable):
            opener.open(id_, text)
