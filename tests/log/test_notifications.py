"""`GET /api/v1/notifications` over a real server: the chain, subscriptions and their positions, ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from websockets.exceptions import ConnectionClosed

from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.databases import as_roles
from tests.log.browsing import page
from tests.log.listening import SETTINGS, Listener
from tests.log.notified import (
    PROTOCOL,
    acknowledge,
    address,
    as_browser,
    chained,
    events_on,
    heard,
    heard_until,
    last_word,
    notified,
    opened_once,
    refused,
)
from tests.log.streaming import leave
from tests.support.log_versions import version
from tests.support.waiting import wait_for

NODE_LISTENER = """
const socket = new WebSocket(process.argv[1], ["berth.notifications.v1", "berth.bearer." + process.argv[2]]);
socket.addEventListener("message", ({data}) => {
  const frame = JSON.parse(data);
  if (frame.type === "checkpoint") return;
  console.log(JSON.stringify(frame.type === "begin" ? {...frame, spoken: socket.protocol} : frame));
  if (frame.type === "event") socket.send(JSON.stringify({type: "ack", version: frame.version}));
});
"""


def test_events_come_as_they_commit_and_each_sees_its_own(listener: Listener) -> None:
    tenants = [new_tenant(listener.admin) for _ in range(2)]
    after = version(listener.admin)["version"]
    with (
        notified(tenants[0]) as first,
        notified(tenants[0], after=after) as beside,
        notified(tenants[1], after=after) as other,
        notified(listener.admin, after=after) as operator,
    ):
        begin = heard(first)
        assert (begin["type"], begin["after"]) == ("begin", after)
        for tenant in (*tenants, None, *tenants):
            leave(listener.database, tenant, 2)
        told = [events_on(one, 4) for one in (first, beside, other)]
        assert told[0] == told[1]
        for tenant, events in zip((tenants[0], tenants[0], tenants[1]), told, strict=True):
            assert chained(events, after)
            assert {event["tenant_id"] for event in events} == {tenant.tenant_id}
        everything = events_on(operator, 10)
        assert [event["version"] for event in everything] == list(range(after + 1, after + 11))
        assert chained(everything, after)
        row = listener.database.execute(
            "select jsonb_build_object('leader_id', leader_id, 'event_id', event_id, 'event_type', event_type, 'subject', "
            "subject, 'correlation_id', correlation_id, 'tenant_id', tenant_id, 'data', payload) from log where version = %s",
            (told[0][0]["version"],),
        ).fetchone()
        assert row is not None
        assert {**told[0][0], **row[0]} == told[0][0], "it says what the log has"
        assert told[0][0].keys() == {*row[0], "type", "version", "prev_version", "timestamp"}


def test_a_filter_takes_the_chain_and_gives_checkpoints(listener: Listener) -> None:
    after = version(listener.admin)["version"]
    leave(listener.database, None, 2, "node.offline")
    leave(listener.database, None, 2, "node.online")
    head = version(listener.admin)["version"]
    with notified(listener.admin, after=after, types="node.online", subject="things/*") as stream:
        told = events_on(stream, 2)
        assert all("prev_version" not in event for event in told)
        assert {event["event_type"] for event in told} == {"node.online"}
        checkpoint = heard_until(stream, "checkpoint")
        assert checkpoint["version"] == checkpoint["scanned_to"] == head


def test_a_subscription_goes_on_behind_what_was_acknowledged(listener: Listener) -> None:
    tenant, rival = new_tenant(listener.admin), new_tenant(listener.admin)
    with notified(tenant, subscription="desk") as stream:
        assert heard(stream)["subscription"] == "desk"
        leave(listener.database, tenant, 4)
        told = events_on(stream, 4)
        assert acknowledge(stream, told[1]["version"]) == told[1]["version"] == listener.position(tenant, "desk")
        with notified(tenant, subscription="desk", after=0) as behind:
            assert heard(behind)["after"] == told[1]["version"]
            behind.send('{"type":"ack","version":0}')
            assert heard_until(behind, "acked")["version"] == told[1]["version"], "a position never goes back"
    with notified(tenant, subscription="desk", after=0) as stream:
        assert heard(stream)["after"] == told[1]["version"], "where it was goes before `after`"
        assert events_on(stream, 2) == told[2:], "at least once: what was not acknowledged comes again"
        leave(listener.database, rival, 2)
        checkpoint = heard_until(stream, "checkpoint")
        while checkpoint["version"] < version(listener.admin)["version"]:
            checkpoint = heard_until(stream, "checkpoint")
        acknowledge(stream, checkpoint["version"])
    assert listener.position(tenant, "desk") == checkpoint["version"], (
        "a checkpoint moves the position past events of other tenants"
    )
    with notified(rival, subscription="desk", after=0) as stream:
        assert heard(stream)["after"] == 0, "another tenant's name is another subscription"
        assert {event["tenant_id"] for event in events_on(stream, 2)} == {rival.tenant_id}
    (shown,) = tenant.every("/notifications/subscriptions", 1)
    assert (shown["name"], shown["version"]) == ("desk", checkpoint["version"])
    assert rival.call("DELETE", "/notifications/subscriptions/desk").status_code == 204
    problem(rival.call("DELETE", "/notifications/subscriptions/desk"), 404, "not_found")
    assert listener.position(tenant, "desk") == checkpoint["version"], "and only its own is removed"


def test_what_is_acknowledged_last_is_kept_although_the_client_is_gone(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with notified(tenant, subscription="going") as stream:
        leave(listener.database, tenant, 2)
        told = events_on(stream, 2)
        acknowledge(stream, told[0]["version"])  # the next is not written at once
        stream.send(json.dumps({"type": "ack", "version": told[1]["version"]}))
    wait_for(lambda: listener.position(tenant, "going") != told[0]["version"], "the second position to be kept")
    assert listener.position(tenant, "going") == told[1]["version"]


def test_subscriptions_are_bounded_and_can_be_removed(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    for name in ("a", "b", "c", "a"):
        opened_once(tenant, subscription=name)
    status, document = refused(tenant, subscription="d")
    assert (status, document["code"]) == (409, "quota_exceeded")
    for said_before in (False, True):
        with notified(tenant, subscription="a") as stream:
            leave(listener.database, tenant, 1)
            (told,) = events_on(stream, 1)
            if said_before:
                acknowledge(stream, told["version"])
            assert tenant.call("DELETE", "/notifications/subscriptions/a").status_code == 204
            stream.send(json.dumps({"type": "ack", "version": told["version"]}))
            code, word = last_word(stream)
        assert (code, word and word["code"]) == (4404, "not_found"), (
            "a removed subscription keeps no events and is refused"
        )
    opened_once(tenant, subscription="d")
    listener.database.execute(
        "update notification_subscriptions set kept_until = clock_timestamp() where scope = %s", (tenant.tenant_id,)
    )
    assert tenant.every("/notifications/subscriptions", 1) == []
    opened_once(tenant, subscription="e")
    assert [one["name"] for one in tenant.every("/notifications/subscriptions", 1)] == ["e"], (
        "forgotten ones take no room"
    )
    assert listener.admin.call("DELETE", "/notifications/subscriptions/none").status_code == 404


def test_a_subscription_keeps_the_log_within_its_bounds(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    leave(listener.database, tenant, 20)
    head = version(listener.admin)["version"]
    opened_once(tenant, subscription="kept", after=head - 10)

    def needs_from() -> list[int]:
        rows = listener.database.execute(
            "select needs_from from log_cursors where kind = 'subscription' and tenant_id = %s", (tenant.tenant_id,)
        )
        return [row[0] for row in rows]

    assert needs_from() == [head - 9]
    listener.database.execute("update notification_subscriptions set versions_max = 5 where name = 'kept'")
    assert needs_from() == [head - 5], "as many versions as it may, and no more"
    listener.database.execute(
        "update notification_subscriptions set kept_until = clock_timestamp() where name = 'kept'"
    )
    assert needs_from() == [], "and no longer than it may"


def test_a_browser_sends_its_key_as_a_subprotocol_and_gets_refusals_on_the_socket(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with as_browser(tenant) as stream:
        assert stream.subprotocol == PROTOCOL, "the key is not said back"
        leave(listener.database, tenant, 1)
        events_on(stream, 1)
    wrong = Caller(tenant.http, "berth_x")
    for stream, code, named in (
        (as_browser(wrong), 4401, "unauthenticated"),
        (as_browser(tenant, after=2**62), 4400, "version_in_future"),
        (as_browser(tenant, types="x"), 4422, "invalid"),
    ):
        with stream:
            closed, word = last_word(stream)
            assert (closed, word and word["code"]) == (code, named)
    for offered in (("berth.bearer." + str(tenant.key),), (PROTOCOL, "berth.bearer.a", "berth.bearer.b")):
        with pytest.raises(Exception, match="400"):
            as_browser(tenant, *offered)
    assert str(tenant.key) not in listener.log.read_text()


def test_a_page_listens_and_acknowledges(listener: Listener) -> None:
    """The browsers' own WebSocket, as Node has it."""
    tenant = new_tenant(listener.admin)
    with page(NODE_LISTENER, address(tenant, subscription="page"), str(tenant.key)) as told:
        begin = next(told)
        assert (begin["type"], begin["spoken"]) == ("begin", PROTOCOL)
        leave(listener.database, tenant, 1)
        event, acked = next(told), next(told)
    assert event["type"] == "event"
    assert acked == {"type": "acked", "version": event["version"]}
    assert listener.position(tenant, "page") == event["version"]


def test_a_revoked_key_receives_no_further_event(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    with notified(tenant) as stream:
        (made,) = listener.admin.get("/admin/api-keys", tenant_id=tenant.tenant_id)["items"]
        assert listener.admin.call("DELETE", f"/admin/api-keys/{made['id']}").status_code == 204
        code, word = last_word(stream)
    assert (code, word and word["code"]) == (4401, "unauthenticated")


def test_sockets_end_when_the_leader_changes(listener: Listener) -> None:
    with notified(listener.admin) as stream:
        heard(stream)
        listener.database.execute("update log_head set leader_id = '1-00000001'")
        try:
            code, word = last_word(stream)
            assert (code, word and word["code"]) == (4503, "leader_changed")
            status, document = refused(listener.admin)
            assert (status, document["code"]) == (503, "leader_unaccepted")
        finally:
            listener.database.execute("update log_head set leader_id = postgres_leader_id()")
    with notified(listener.admin) as stream:
        leave(listener.database, None, 1)
        events_on(stream, 1)


def test_what_was_truncated_is_gone_and_reported(listener: Listener) -> None:
    tenant = new_tenant(listener.admin)
    leave(listener.database, tenant, 3)
    own = version(listener.admin)["version"]
    opened_once(tenant, subscription="behind", after=own - 2)
    leave(listener.database, None, 3)
    head = version(listener.admin)["version"]
    listener.database.execute("update log_first set version = %s", (head,))
    try:
        for query in ({"subscription": "behind"}, {"after": own - 2}, {"subscription": "new", "after": own - 2}):
            status, document = refused(tenant, **query)
            assert (status, document["code"], document["first_version"]) == (410, "log_truncated", head)
        with as_browser(tenant, after=own - 2) as stream:
            code, word = last_word(stream)
            assert (code, word and word["code"], word and word["first_version"]) == (4410, "log_truncated", head)
        assert [one["name"] for one in tenant.every("/notifications/subscriptions", 1)] == ["behind"]
        with notified(tenant, after=own) as stream:
            leave(listener.database, tenant, 1)
            assert events_on(stream, 1)[0]["prev_version"] == own, "no event of the tenant was truncated behind it"
    finally:
        listener.database.execute("update log_first set version = 1")


def test_a_kill_between_loses_nothing_and_a_stop_closes_with_its_code(database_url: str, tmp_path: Path) -> None:
    directory = tmp_path / "api"
    directory.mkdir()
    endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
    plan = orchestrator_plan("public", endpoints, ensure_authority(directory, "berth.local"), free_port())
    process = ChildProcess(plan, directory / "api.log")
    told: list[dict[str, Any]] = []
    process.spawn(SETTINGS)
    try:
        process.wait_ready()
        with (
            httpx.Client(base_url=endpoints.api_url, timeout=60) as http,
            psycopg.connect(database_url, autocommit=True) as database,
        ):
            admin = Caller(http, insert_admin_key(database_url))
            tenant = new_tenant(admin)
            begin = version(admin)["version"]
            kept, waiting = begin, 0
            for unacknowledged in (1, 2):
                with notified(tenant, subscription="desk", after=begin) as stream:
                    leave(database, tenant, 5)
                    came = events_on(stream, waiting + 5)
                    kept = acknowledge(stream, came[-1 - unacknowledged]["version"])
                    told += [event for event in came if event["version"] <= kept]
                    process.kill()
                    with pytest.raises(ConnectionClosed):
                        heard_until(stream, "nothing")
                leave(database, tenant, 1)  # while no client listens
                leave(database, None, 1)
                waiting = unacknowledged + 1
                process.spawn(SETTINGS)
                process.wait_ready()
            with notified(tenant, subscription="desk") as stream:
                assert heard(stream)["after"] == kept
                told += events_on(stream, waiting)
                assert chained(told, begin), "nothing was missed, and what was acknowledged did not come again"
                rows = database.execute(
                    "select version from log where tenant_id = %s and version > %s order by 1",
                    (tenant.tenant_id, begin),
                ).fetchall()
                assert [event["version"] for event in told] == [row[0] for row in rows]
                process.terminate()
                code, word = last_word(stream)
                assert (code, word and word["code"]) == (1012, "stopping")
    finally:
        process.terminate()
        process.wait_ended()
