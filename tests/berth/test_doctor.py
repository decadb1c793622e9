"""`berth doctor` reports healthy parts as ok and every fault with what to do."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import nats
import psycopg
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, StreamConfig
from typer.testing import CliRunner

from berth.cli.deployment.security_findings import address_findings
from berth.cli.main import app
from berth.cli.settings import Settings as CliSettings
from berth.local.servers import LocalNats, free_port
from migrations.roles import Role
from outbox_relay.settings import Settings
from outbox_relay.stream import wanted_configuration
from tests.allocations.driving import run_with
from tests.allocations.seeding import Seeded, create_allocation, seed
from tests.berth.scripted import Reply, ScriptedServer
from tests.databases import as_role
from tests.outbox_relay.relays import STREAM, asked, leave_events
from tests.support.stuck_releases import ONCE, stuck_failure

FIT = wanted_configuration(Settings(database_url="postgresql://none", nats_url="nats://none"), 1)
WORKER = "berth-worker"
Found = dict[str, tuple[str, str]]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No stack in the directory."""
    monkeypatch.chdir(tmp_path)


def examined(**settings: str) -> Found:
    """Verdict and detail by subject, as the command prints them."""
    told = CliRunner().invoke(app, ["doctor", "--output", "json"], env=settings)
    document = json.loads(told.stdout)
    assert told.exit_code == (0 if document["healthy"] else 1)
    return {one["subject"]: (one["verdict"], one["detail"]) for one in document["findings"]}


@pytest.fixture
def seeded(database_url: str) -> Seeded:
    """Two nodes, online."""
    return seed(database_url, slice_nodes=2)


@pytest.fixture
def database(database_url: str) -> Iterator[psycopg.Connection]:
    """To hurt the database."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def test_a_healthy_fleet(database_url: str, seeded: Seeded) -> None:
    found = examined(BERTH_DATABASE_URL=as_role(database_url, Role.OPERATOR))
    unusual = {subject for subject, (verdict, _) in found.items() if verdict not in ("ok", "skipped")}
    assert unusual == {"postgres", "gpu quotas", "backup"}, "as the tests' servers are"
    assert "not durable (fsync=off" in found["postgres"][1], "as it is in tests"
    assert {"clock postgres", "schema", "relay", "nodes", "slots", "deadlines", "metering", "balances"} <= found.keys()
    assert [found[name][0] for name in ("nats", "temporal", "api")] == ["skipped"] * 3


@pytest.mark.full
def test_unreachable_servers() -> None:
    port = free_port()
    found = examined(
        BERTH_DATABASE_URL=f"postgresql://x@127.0.0.1:{port}/x", BERTH_NATS_URL=f"nats://127.0.0.1:{port}",
        BERTH_TEMPORAL_ADDRESS=f"127.0.0.1:{port}", BERTH_API_URL=f"http://127.0.0.1:{port}",
    )  # fmt: skip
    assert [found[name][0] for name in ("postgres", "nats", "temporal", "api")] == ["bad"] * 4


def test_slots_that_wait_for_an_operator(database_url: str, seeded: Seeded, database: psycopg.Connection) -> None:
    allocation = create_allocation(database_url, seeded, gpus=2)
    run_with(database_url, lambda context: stuck_failure(context, database_url, allocation), limits=ONCE)
    verdict, detail = examined(BERTH_DATABASE_URL=database_url)["slots"]
    assert verdict == "warning"
    assert "2 are blocked by a cleanup that failed; `berth node list`" in detail
    assert "orphan" not in detail
    database.execute(
        "insert into node_orphans (node_id, allocation_id, slots, waits_for, waits_since)"
        " select id, uuidv7(), '{3,4,5}', 'operator', now() from nodes order by name limit 1"
    )
    assert "3 are kept by orphans on gpu-slice-0" in examined(BERTH_DATABASE_URL=database_url)["slots"][1]


def test_passed_deadlines_offline_nodes_and_dead_letters(
    database_url: str, seeded: Seeded, database: psycopg.Connection
) -> None:
    create_allocation(database_url, seeded)
    late = "update {} set waits_since = now() - interval '3 minutes', waits_until = now() - interval '2 minutes'"
    database.execute(late.format("allocations"))
    database.execute("update nodes set online = false where name = 'gpu-slice-1'")
    database.execute(
        "insert into dead_letters (consumer, version, reason, detail, excerpt, tries, first_at)"
        " values ('c', 1, 'stub', 'd', 'e', 1, now())"
    )
    database.execute("update outbox set occurred_at = now() - interval '1 minute'")
    database.execute(
        "insert into certificate_requests (node_id, node_epoch, key_sha256, csr_pem, requested_at)"
        " select id, 1, sha256('key'), 'csr', now() - interval '1 minute' from nodes limit 1"
    )
    found = examined(BERTH_DATABASE_URL=database_url)
    assert "is an issuer running?" in found["issuer"][1]
    assert found["issuer"][0] == "bad"
    assert found["deadlines"] == ("warning", "past what they wait for: 1 allocations; is a worker running?")
    assert found["nodes"] == ("warning", "1 of 2 are offline: gpu-slice-1")
    assert found["dead letters"][0] == "warning"
    verdict, detail = found["relay"]
    assert (verdict, "is a relay running?" in detail) == ("bad", True)


def test_an_identity_with_two_keys(database_url: str, seeded: Seeded, database: psycopg.Connection) -> None:
    assert "node identities" not in examined(BERTH_DATABASE_URL=database_url)
    database.execute("update nodes set identity_conflict_at = now() where name = 'gpu-slice-1'")
    verdict, detail = examined(BERTH_DATABASE_URL=database_url)["node identities"]
    assert verdict == "bad"
    assert "two keys were used as the identity of gpu-slice-1; revoke their certificates" in detail


def test_a_superuser_sandboxes_and_tenants_without_limit(
    database_url: str, seeded: Seeded, database: psycopg.Connection
) -> None:
    database.execute("update nodes set driver = 'sandbox' where name = 'gpu-slice-1'")
    found = examined(BERTH_DATABASE_URL=database_url)
    assert found["postgres role"][0] == "warning"
    assert found["node drivers"] == ("warning", "1 run sandbox or noop, which isolate nothing: gpu-slice-1")
    assert found["gpu quotas"][0] == "warning"
    database.execute("update nodes set driver = 'guests'")
    allowed = "all are for real guests; BERTH_SANDBOX_ALLOWED lets nodes enrol with sandbox or noop"
    found = examined(BERTH_DATABASE_URL=database_url, BERTH_SANDBOX_ALLOWED="true")
    assert found["node drivers"] == ("warning", allowed)
    database.execute("update tenant_quotas set gpus_limit = 8")
    database.execute("drop role if exists plain")
    database.execute("create role plain login password 'a-long-one' in role pg_read_all_data")
    plain = database_url.replace(database_url.partition("//")[2].partition("@")[0], "plain:a-long-one")
    found = examined(BERTH_DATABASE_URL=plain)
    assert found["postgres role"] == ("ok", "plain is no superuser")
    assert found["node drivers"][0] == found["gpu quotas"][0] == "ok"
    database.execute("drop role plain")


@pytest.mark.parametrize(
    ("name", "address", "transport", "password"),
    [
        ("api", "http://berth.example", "warning", None),
        ("api", "https://berth.example", "ok", None),
        ("api", "http://127.0.0.1:1", "ok", None),
        ("postgres", "postgresql://berth:postgres@db.invalid/berth", "warning", "bad"),
        ("postgres", "postgresql://berth:berth@db.invalid/x?sslmode=verify-full", "ok", "bad"),
        ("postgres", "postgresql://berth:c29tZXRoaW5n@db.invalid/x?sslmode=require", "warning", "ok"),
        ("postgres", "postgresql://berth@db.invalid/berth", "warning", "warning"),
        ("postgres", "postgresql://berth@localhost:1/berth", "ok", "ok"),
        ("nats", "nats://relay:nats@nats.invalid:4222", "warning", "bad"),
        ("nats", "tls://relay:c29tZXRoaW5n@nats.invalid:4222", "ok", "ok"),
        ("temporal", "temporal.invalid:7233", "ok", None),
        ("temporal", "127.0.0.1:1", "ok", None),
    ],
)
def test_passwords_and_transport(name: str, address: str, transport: str, password: str | None) -> None:
    found = {one.subject: one for one in address_findings(CliSettings(), {name: address})}
    assert found[f"{name} transport"].verdict == transport
    assert (found[f"{name} password"].verdict if password else None) == password
    assert (f"{name} password" in found) == (password is not None)


def test_an_api_that_is_reached_over_http_is_reported() -> None:
    verdict, detail = examined(BERTH_API_URL="http://berth.invalid")["api transport"]
    assert (verdict, "enrolment tokens can be read on the way; use https://" in detail) == ("warning", True)
    assert examined(BERTH_API_URL="https://berth.invalid")["api transport"][0] == "ok"


def test_a_temporal_elsewhere_that_is_reached_without_tls() -> None:
    found = next(address_findings(CliSettings(temporal_tls=False), {"temporal": "temporal.invalid:1"}))
    assert (found.subject, found.verdict) == ("temporal transport", "warning")
    assert "remove BERTH_TEMPORAL_TLS=false" in found.detail


def test_billing_that_is_behind(database_url: str, seeded: Seeded, database: psycopg.Connection) -> None:
    create_allocation(database_url, seeded)
    database.execute("update outbox set occurred_at = now() - interval '1 minute'")
    database.execute("select log_advance(100)")
    database.execute("update balances set prepaid = true, look_at = now() - interval '2 minutes'")
    database.execute("update tenants set depleted_at = now()")
    found = examined(BERTH_DATABASE_URL=database_url)
    assert found["metering"][0] == "warning"
    assert found["metering"][1].startswith("1 versions behind the log, the first 6")
    assert found["balances"][0] == "warning"
    assert found["balances"][1].startswith("1 are prepaid, 1 are used up; one is overdue for evaluation by 12")


@pytest.mark.parametrize(("minutes", "way"), [(-9, "behind"), (9, "ahead of")])
def test_a_database_with_another_clock(
    database_url: str, seeded: Seeded, database: psycopg.Connection, minutes: int, way: str
) -> None:
    database.execute(
        "create function public.clock_timestamp() returns timestamptz language sql as"
        f" $$ select pg_catalog.clock_timestamp() + interval '{minutes} minutes' $$"
    )
    separator = "&" if "?" in database_url else "?"
    found = examined(BERTH_DATABASE_URL=f"{database_url}{separator}options=-csearch_path%3Dpublic%2Cpg_catalog")
    verdict, detail = found["clock postgres"]
    assert (verdict, f"s {way} this machine's" in detail) == ("warning", True)


@pytest.mark.parametrize(("seconds", "verdict"), [(0.0, "ok"), (-60.0, "warning"), (60.0, "warning")])
def test_an_api_with_another_clock(seconds: float, verdict: str) -> None:
    with ScriptedServer([Reply()], clock=lambda: time.time() + seconds) as server:
        found = examined(BERTH_API_URL=server.address)
    assert (found["api"][0], found["clock api"][0]) == ("ok", verdict)


@pytest.fixture
def bare_nats(nats_server: LocalNats) -> Iterator[LocalNats]:
    """NATS without a stream, before the test and after it."""

    async def delete(client: Client) -> None:
        try:
            await client.jetstream().delete_stream(STREAM)
        except nats.js.errors.NotFoundError:
            return

    asked(nats_server.url, delete)
    yield nats_server
    asked(nats_server.url, delete)


def make_stream(nats_url: str, configuration: StreamConfig) -> None:
    """Create a stream with this configuration, as an operator might have."""

    async def make(client: Client) -> None:
        await client.jetstream().add_stream(configuration)

    asked(nats_url, make)


def publish(nats_url: str, count: int, ids: Sequence[str] = ()) -> None:
    """Messages in the stream, the first of them with these event ids."""

    async def publish(client: Client) -> None:
        for number in range(count):
            headers = {"Nats-Msg-Id": ids[number]} if number < len(ids) else None
            await client.jetstream().publish("berth.events.operator.test", b"{}", headers=headers)

    asked(nats_url, publish)


def purge(nats_url: str) -> None:
    """Remove all messages; the stream keeps its last sequence."""

    async def remove(client: Client) -> None:
        await client.jetstream().purge_stream(STREAM)

    asked(nats_url, remove)


def event_ids(database: psycopg.Connection) -> list[str]:
    """Of the log, in order."""
    return [row[0] for row in database.execute("select event_id::text from log order by version")]


def test_a_wrongly_configured_stream_is_reported(bare_nats: LocalNats) -> None:
    found = examined(BERTH_NATS_URL=bare_nats.url)
    assert found["nats"][0] == "ok"
    verdict, detail = found["stream"]
    assert (verdict, "no stream BERTH_LOG yet; is a relay running?" in detail) == ("warning", True)
    make_stream(bare_nats.url, replace(FIT, max_msgs=1_000_000, duplicate_window=60))
    verdict, detail = examined(BERTH_NATS_URL=bare_nats.url)["stream"]
    assert verdict == "bad"
    assert "max_msgs is 1000000, not unlimited; the duplicate window is 60 s" in detail


def test_the_lag_of_the_stream_behind_the_log(
    bare_nats: LocalNats, database_url: str, database: psycopg.Connection
) -> None:
    settings = {"BERTH_DATABASE_URL": database_url, "BERTH_NATS_URL": bare_nats.url}
    make_stream(bare_nats.url, FIT)
    assert examined(**settings)["publishing"][0] == "ok"
    leave_events(database, [{"n": n} for n in range(3)])
    database.execute("select log_advance(10)")
    ids = event_ids(database)
    publish(bare_nats.url, 1, ids)
    found = examined(**settings)
    assert found["history"][0] == "ok"
    assert found["stream"] == ("ok", "BERTH_LOG is at 1, set as the log needs it")
    assert (found["publishing"][0], found["publishing"][1].split(",")[0]) == ("ok", "2 events are not on NATS yet")
    database.execute("update log set occurred_at = now() - interval '1 minute' where version = 2")
    assert examined(**settings)["publishing"][0] == "bad"
    publish(bare_nats.url, 3, ids[1:])
    found = examined(**settings)
    verdict, detail = found["publishing"]
    assert (verdict, "NATS is ahead of Postgres" in detail) == ("bad", True)
    assert "history" not in found


def test_another_history_in_nats_is_found_by_content(
    bare_nats: LocalNats, database_url: str, database: psycopg.Connection
) -> None:
    settings = {"BERTH_DATABASE_URL": database_url, "BERTH_NATS_URL": bare_nats.url}
    make_stream(bare_nats.url, FIT)
    leave_events(database, [{"n": n} for n in range(100)])
    database.execute("select log_advance(100)")
    ids = event_ids(database)
    publish(bare_nats.url, 60, ids[:37] + [str(uuid.uuid4()) for _ in range(23)])
    verdict, detail = examined(**settings)["history"]
    assert (verdict, "different events at versions 38 to 60" in detail) == ("bad", True)
    assert "When publishing stops" in detail
    purge(bare_nats.url)
    assert examined(**settings)["history"][0] == "ok"
    database.execute("update log_head set leader_id = '1-00000001'")
    verdict, detail = examined(**settings)["history"]
    assert (verdict, "was written by Postgres 1-00000001" in detail) == ("bad", True)


def test_consumers_without_a_pull_request_are_reported(bare_nats: LocalNats) -> None:
    make_stream(bare_nats.url, FIT)
    assert examined(BERTH_NATS_URL=bare_nats.url)["consumers"][0] == "warning"

    async def consume(client: Client) -> None:
        await client.jetstream().add_consumer(STREAM, ConsumerConfig(durable_name=WORKER))

    asked(bare_nats.url, consume)
    assert examined(BERTH_NATS_URL=bare_nats.url)["consumers"] == ("ok", f"{WORKER}: 0 wait, 0 under way")
    publish(bare_nats.url, 2)
    alone = f"{WORKER}: 2 wait, 0 under way, and no process pulls"
    assert examined(BERTH_NATS_URL=bare_nats.url)["consumers"] == ("warning", alone)
