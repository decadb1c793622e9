"""`GET /v1/subscribe` over a real server: order, the chain, resuming, filters, ends, and readers that do not read."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from httpx_sse import connect_sse

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem, refusal
from tests.api.processes import metric_of, public_process
from tests.databases import copied_database
from tests.log.browsing import page
from tests.log.streaming import StreamedEvent, call_after_keepalives, events_of, leave, parsed, refused, subscribed
from tests.support.log_versions import version
from tests.support.waiting import wait_for

NODE_READER = """
const source = new EventSource(process.argv[1]);
for (const kind of ["node.online", "node.offline"])
  source.addEventListener(kind, e => console.log(JSON.stringify([e.type, e.lastEventId, JSON.parse(e.data)])));
source.addEventListener("error", () => {});
setInterval(() => {}, 1000);
"""


@dataclass(frozen=True)
class Feed:
    """A running API, and its database to write to."""

    admin: Caller
    database: psycopg.Connection[Any]
    log: Path

    def metric(self, name: str) -> float:
        """A number of the process."""
        return metric_of(self.admin.http, name)


@pytest.fixture(scope="module")
def feed(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Feed]:
    """One process over one database for the module, without a relay: the feed sequences by itself."""
    directory = tmp_path_factory.mktemp("feed")
    settings = {
        "BERTH_FEED_BUFFER_BYTES_MAX": "200000",
        "BERTH_FEED_KEEPALIVE_SECONDS": "0.3",
        "BERTH_FEED_STALL_SECONDS": "3",
        "BERTH_FEED_CHECKPOINT_SECONDS": "0.05",
        "BERTH_FEED_TENANT_SUBSCRIBERS_MAX": "4",
        "BERTH_CREDENTIAL_CACHE_SECONDS": "0.1",
    }
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory, settings) as http,
        psycopg.connect(url, autocommit=True) as database,
    ):
        yield Feed(Caller(http, insert_admin_key(url)), database, directory / "api.log")


def test_what_comes_is_delivered_in_order_and_whole(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    with subscribed(feed.admin) as stream:
        leave(feed.database, tenant, 3)
        told = events_of(stream, 3)
    first = told[0].version
    assert [(t.version, t.data["prev_version"], t.id) for t in told] == [
        (n, n - 1, str(n)) for n in range(first, first + 3)
    ]
    row = feed.database.execute(
        "select jsonb_build_object('leader_id', leader_id, 'event_id', event_id, 'event_type', event_type, 'subject', "
        "subject, 'correlation_id', correlation_id, 'tenant_id', tenant_id, 'data', payload) from log where version = %s",
        (first,),
    ).fetchone()
    assert row is not None
    assert told[0].event == "node.online"
    assert {name: told[0].data[name] for name in row[0]} == row[0]
    assert told[0].data["timestamp"].endswith("Z")
    assert told[0].data.keys() == {*row[0], "version", "prev_version", "timestamp"}


def test_each_tenant_proves_by_the_chain_that_it_missed_nothing_while_many_write(feed: Feed) -> None:
    tenants = [new_tenant(feed.admin) for _ in range(3)]
    after = version(feed.admin)["version"]
    each = 60

    def write(tenant: Caller) -> None:
        with psycopg.connect(feed.database.info.dsn, password=feed.database.info.password, autocommit=True) as own:
            for n in range(each):
                leave(own, tenant if n % 3 else None, 2)

    def read(caller: Caller, late: bool) -> list[StreamedEvent]:
        number = 2 * (each if caller is feed.admin else each - each // 3)
        number *= len(tenants) if caller is feed.admin else 1
        with subscribed(caller, after=after) as stream:
            found = events_of(stream, number // 2)
        with subscribed(caller, headers={"last-event-id": found[-1].id}, after=after if late else 0) as stream:
            return found + events_of(stream, number - len(found))

    with ThreadPoolExecutor(8) as pool:
        reading = [pool.submit(read, caller, late) for caller in (*tenants, feed.admin) for late in (False,)]
        list(pool.map(write, tenants))
        told = [future.result() for future in reading]
    for caller, found in zip((*tenants, feed.admin), told, strict=True):
        previous = after
        for one in found:
            chained = one.data["prev_version"]
            assert chained == previous if previous != after else chained <= after
            assert caller is feed.admin or one.data["tenant_id"] == caller.tenant_id
            previous = one.version
        rows = feed.database.execute(
            "select version from log where version > %s and (%s::uuid is null or tenant_id = %s) order by 1",
            (after, caller.tenant_id, caller.tenant_id),
        ).fetchall()
        assert [one.version for one in found] == [row[0] for row in rows]


def test_a_subscriber_that_was_away_gets_all_of_it_from_the_log(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    after = version(feed.admin)["version"]
    leave(feed.database, tenant, 2_500)
    for caller in (feed.admin, tenant):
        with subscribed(caller, after=after) as stream:
            told = events_of(stream, 2_500)
            assert [one.data["data"]["n"] for one in told] == list(range(1, 2_501))
            leave(feed.database, tenant, 1)
            assert events_of(stream, 1)[0].data["prev_version"] == told[-1].version, "from the log to the tail, gapless"
        after = told[0].version - 1


def scanned(stream: Iterator[StreamedEvent | str], head: int) -> StreamedEvent:
    """The checkpoint at `head`; those of where the process's tail was until then come before it, in order."""
    last = -1
    for one in stream:
        if isinstance(one, StreamedEvent):
            assert one.event == "checkpoint"
            assert last < one.data["scanned_to"] <= head
            last = one.data["scanned_to"]
            if last == head:
                return one
    raise AssertionError(f"the stream ended at {last}, before {head}")


def test_a_filtered_stream_has_checkpoints_in_place_of_the_chain(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    after = version(feed.admin)["version"]
    leave(feed.database, None, 3, "node.offline")
    leave(feed.database, tenant, 2, "provisioning.active")
    leave(feed.database, tenant, 2, "provisioning.releasing.requested")
    leave(feed.database, None, 2, "node.offline")
    head = version(feed.admin)["version"]
    for query, number in (
        ({"types": ["provisioning.*"]}, 4), ({"types": ["provisioning.active", "node.offline"]}, 7),
        ({"types": "provisioning.*", "subject": "things/1"}, 2), ({"subject": "things/*"}, 12),
        ({"subject": "nothing/1"}, 0),
    ):  # fmt: skip
        with subscribed(feed.admin, after=after, **query) as stream:
            assert all("prev_version" not in one.data for one in events_of(stream, number))
            checkpoint = scanned(stream, head)
            assert checkpoint.id == str(head), "a resumed stream does not scan again"
            leave(feed.database, None, 1, "node.cordoned")
            head = version(feed.admin)["version"]
            if query != {"subject": "things/*"}:
                scanned(stream, head)  # sent as the log grows
            assert checkpoint.data.keys() == {"committed_version", "scanned_to", "leader_id"}


def test_without_durability_checkpoints_come_beside_the_chain(feed: Feed) -> None:
    with subscribed(feed.admin, durable="false") as stream:
        begin = next(one for one in stream if isinstance(one, StreamedEvent))
        leave(feed.database, None, 1)
        head = version(feed.admin)["version"]
        told, previous = begin, begin.data["committed_version"]
        for one in stream:
            if not isinstance(one, StreamedEvent):
                continue
            if one.event != "checkpoint":
                assert one.data["prev_version"] == previous == one.version - 1
                told, previous = one, one.version
                continue
            leader_id = told.data["leader_id"]
            assert one.data == {"committed_version": previous, "leader_id": leader_id, "scanned_to": previous}
            if previous == head:
                break


def test_silence_has_signs_of_life(feed: Feed) -> None:
    with subscribed(new_tenant(feed.admin)) as stream:
        assert [next(stream), next(stream)] == ["keepalive", "keepalive"]


def test_httpx_sse_dispatches_no_empty_event(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    sent = {"authorization": f"Bearer {tenant.key}"}
    with connect_sse(tenant.http, "GET", "/v1/subscribe", headers=sent, timeout=30) as source:
        leaving: list[Callable[[], object]] = []
        call_after_keepalives(source, leaving)
        events = source.iter_sse()
        found = []
        for _ in range(2):
            leaving.append(lambda: leave(feed.database, tenant, 1))
            found.append(next(events))
    assert leaving == [], "a keepalive came before each event"
    assert [event.json()["version"] for event in found] == [int(event.id) for event in found]
    assert [event.retry for event in found] == [1000, None]


def test_bad_questions_are_refused_before_a_stream_begins(feed: Feed) -> None:
    head = version(feed.admin)["version"]
    document = problem(refused(feed.admin, after=head + 1), 400, "version_in_future")
    assert document["version"] == head
    problem(refused(feed.admin, after=2**63 - 1), 400, "version_in_future")
    for query in ({"after": 2**63}, {"after": -1}, {"after": "x"}, {"types": "provisioning.activ"}, {"types": "*"},
                  {"types": ""}, {"subject": "x"}, {"subject": ""}, {"durable": "perhaps"}, {"before": 1},
                  {"types": ["node.online"] * 51}):  # fmt: skip
        problem(refused(feed.admin, **query), 422, "invalid")
    for resumed in ("x", "-1", "9" * 30, str(2**63)):
        problem(refused(feed.admin, headers={"last-event-id": resumed}), 422, "invalid")
    problem(refused(Caller(feed.admin.http, "berth_x")), 401, "unauthenticated")
    problem(feed.admin.http.get("/v1/subscribe?access_token=berth_x"), 401, "unauthenticated")
    with subscribed(feed.admin, after=head, min_version=head):
        pass
    answer = feed.admin.http.get("/v1/version?access_token=" + str(feed.admin.key))
    problem(answer, 401, "unauthenticated")


def test_what_was_truncated_is_gone_and_reported(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    leave(feed.database, tenant, 1)
    own = version(feed.admin)["version"]
    leave(feed.database, None, 5)
    head = version(feed.admin)["version"]
    feed.database.execute("update log_first set version = %s", (head - 1,))
    try:
        document = problem(refused(feed.admin, after=own), 410, "log_truncated")
        assert (document["first_version"], document["version"]) == (head - 1, head)
        problem(refused(feed.admin, headers={"last-event-id": "0"}), 410, "log_truncated")
        problem(refused(tenant, after=own - 1), 410, "log_truncated")
        with subscribed(feed.admin, after=head - 2) as stream:
            assert events_of(stream, 1)[0].version == head - 1
        with subscribed(tenant, after=own) as stream:
            leave(feed.database, tenant, 1)
            assert events_of(stream, 1)[0].data["prev_version"] == own, "no event of the tenant was truncated behind it"
    finally:
        feed.database.execute("update log_first set version = 1")


def test_streams_end_when_the_leader_changes_and_begin_again_when_it_is_accepted(feed: Feed) -> None:
    with subscribed(feed.admin) as all_of_it, subscribed(feed.admin, durable="false") as early:
        feed.database.execute("update log_head set leader_id = '1-00000001'")
        try:
            for stream in (all_of_it, early):
                last = [one for one in stream if isinstance(one, StreamedEvent)][-1]
                assert (last.event, last.data["reason"]) == ("end", "leader_changed")
            problem(refused(feed.admin), 503, "leader_unaccepted")
        finally:
            feed.database.execute("update log_head set leader_id = postgres_leader_id()")
    with subscribed(feed.admin) as stream:
        leave(feed.database, None, 1)
        events_of(stream, 1)


def test_a_subscriber_that_never_reads_is_cut_off_and_no_other_notices(feed: Feed) -> None:
    after = version(feed.admin)["version"]
    address = feed.admin.http.base_url
    with socket.socket() as never_reads:
        never_reads.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        never_reads.connect((address.host, address.port))
        never_reads.sendall(
            f"GET /v1/subscribe HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {feed.admin.key}\r\n\r\n".encode()
        )
        wait_for(lambda: feed.metric("berth_api_feed_subscribers") == 1, "it to subscribe")
        slow = feed.metric('berth_api_feed_ended_total{reason="slow"}')
        with subscribed(feed.admin, after=after) as stream:
            expected = 0
            while feed.metric('berth_api_feed_ended_total{reason="slow"}') == slow:
                leave(feed.database, None, 200)
                expected += 200
                assert expected < 100_000, "it is never cut off"
                events_of(stream, 200)
        wait_for(lambda: feed.metric("berth_api_feed_subscribers") == 0, "both to be gone")
        never_reads.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            while never_reads.recv(65_536):
                pass


@pytest.mark.full
def test_a_subscriber_that_stalls_while_it_catches_up_is_cut_off_and_costs_a_few_pages(feed: Feed) -> None:
    after = version(feed.admin)["version"]
    feed.database.execute(
        "insert into outbox (event_type, correlation_id, subject, payload) select 'node.online', uuidv7(), 'things/1', "
        "jsonb_build_object('text', repeat('x', 2000)) from generate_series(1, 20000)"
    )
    head = version(feed.admin)["version"]
    assert head == after + 20_000
    address, slow = feed.admin.http.base_url, feed.metric('berth_api_feed_ended_total{reason="slow"}')
    before = most = feed.metric("process_resident_memory_bytes")
    assert before > 0
    with contextlib.ExitStack() as stalled:
        for _ in range(6):
            one = stalled.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect((address.host, address.port))
            asked = (
                f"GET /v1/subscribe?after={after} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {feed.admin.key}\r\n\r\n"
            )
            one.sendall(asked.encode())
        while feed.metric('berth_api_feed_ended_total{reason="slow"}') < slow + 6:
            most = max(most, feed.metric("process_resident_memory_bytes"))
    assert most - before < 120_000_000, "six times 40 MB wait in the log, and not in the process"
    with subscribed(feed.admin, after=head - 1) as stream:
        assert events_of(stream, 1)[0].version == head


def test_one_tenant_does_not_take_everybodys_places(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    with subscribed(tenant), subscribed(tenant), subscribed(tenant), subscribed(tenant):
        assert refusal(refused(tenant)) == (429, "concurrency_limited")
        with subscribed(feed.admin), subscribed(new_tenant(feed.admin)):
            pass
    wait_for(lambda: feed.metric("berth_api_feed_subscribers") == 0, "closed streams to be removed")


def test_a_key_that_is_revoked_reads_no_further(feed: Feed) -> None:
    tenant = new_tenant(feed.admin)
    with subscribed(tenant) as stream:
        (made,) = feed.admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
        assert feed.admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
        last = [one for one in stream if isinstance(one, StreamedEvent)][-1]
    assert (last.event, last.data["reason"]) == ("end", "unauthenticated")


def test_curl_reads_it(feed: Feed) -> None:
    after = version(feed.admin)["version"]
    leave(feed.database, None, 2)
    url = f"{feed.admin.http.base_url}/v1/subscribe?after={after}"
    curl = subprocess.Popen(
        ["curl", "-sN", "-H", f"Authorization: Bearer {feed.admin.key}", url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert curl.stdout is not None
        stream = parsed(line.rstrip("\n") for line in curl.stdout)
        assert [one.version for one in events_of(stream, 2)] == [after + 1, after + 2]
    finally:
        curl.kill()
        curl.wait()


def test_an_event_source_reads_it_and_resumes_by_itself(feed: Feed) -> None:
    """Node's EventSource, which is the browsers' interface: it can send no header, and reconnects with Last-Event-ID."""
    after = version(feed.admin)["version"]
    leave(feed.database, None, 1)
    url = f"{feed.admin.http.base_url}/v1/subscribe?after={after}&access_token={feed.admin.key}"
    with page(NODE_READER, url) as told:
        first = next(told)
        assert first[:2] == ["node.online", str(after + 1)]
        assert first[2]["data"]["text"] == 'ä\n:"x'
        # Its stream ends under it; what it missed meanwhile comes, and what it had does not.
        feed.database.execute("update log_head set leader_id = '1-00000001'")
        wait_for(lambda: feed.metric("berth_api_feed_subscribers") == 0, "the stream to end")
        feed.database.execute("update log_head set leader_id = postgres_leader_id()")
        leave(feed.database, None, 1, "node.offline")
        second = next(told)
        assert second[:2] == ["node.offline", str(after + 2)]


def test_a_stop_ends_streams_with_a_word(database_url: str, tmp_path: Path) -> None:
    key = insert_admin_key(database_url)
    found: list[StreamedEvent | str] = []
    opened = threading.Event()
    with public_process(database_url, tmp_path / "api") as http:
        caller = Caller(httpx.Client(base_url=http.base_url), key)

        def read() -> None:
            with subscribed(caller) as stream:
                opened.set()
                found.extend(stream)

        reader = threading.Thread(target=read)
        reader.start()
        opened.wait(20)
    reader.join(20)
    assert isinstance(found[-1], StreamedEvent)
    assert (found[-1].event, found[-1].data["reason"]) == ("end", "stopping")
