"""Nothing but the agent of the session's node, which read the signed task, gets a session; nothing but a writer opens one."""

from __future__ import annotations

import hashlib
import json
import uuid
from contextlib import ExitStack
from socket import create_connection

import pytest
from websockets.sync.client import ClientConnection

from benchmarks.attacks.hostile_connections import HALF_HELLO
from node_agent.wire.console import DATA, HELLO, WELCOME, counted
from node_agent.wire.fields import INTEGER_MAX
from orchestrator.consoles.rules import Target, refusal
from orchestrator.problems import NotFound
from tests.allocations.seeding import add_tenant, connect
from tests.consoles.stage import SECONDS_MAX, AgentLink, ConsoleStage, other_node
from tests.consoles.talking import attached, message, output_until, refused
from tests.support.waiting import wait_for


def waiting(socket: ClientConnection) -> str:
    found = message(socket)
    assert found["type"] == "waiting"
    return str(found["session_id"])


def is_refused(link: AgentLink) -> bool:
    """Whether the process ends the connection without a word."""
    return link.receive() is None


def test_another_tenants_allocation_is_as_one_that_never_existed(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with connect(stage.url) as connection:
        rival = stage.key("admin", add_tenant(connection, f"rival-{uuid.uuid4()}").tenant_id)
    missing = uuid.uuid4()
    status, document = refused(stage.api, rival, allocation)
    never_status, never = refused(stage.api, rival, missing)
    assert (status, document["code"]) == (never_status, never["code"]) == (404, "not_found")
    assert document["detail"].replace(str(allocation), "X") == never["detail"].replace(str(missing), "X")
    assert document.keys() == never.keys()
    assert stage.sessions(allocation) == []


def test_the_rule_refuses_another_tenant_also_where_it_reads_the_row() -> None:
    """Row-level security hides the row from the public process; the rule does not rely on it."""
    tenant, allocation = uuid.uuid4(), uuid.uuid4()
    target = Target(tenant, uuid.uuid4(), "active", "running", online=True, supported=True, agent_version="0.1")
    assert refusal(target, tenant, allocation) is None
    for stranger in (uuid.uuid4(), None):
        assert isinstance(refusal(target, stranger, allocation), NotFound)


@pytest.mark.parametrize("role", ["viewer", "billing"])
def test_a_role_that_may_not_write_gets_no_console(stage: ConsoleStage, role: str) -> None:
    allocation = stage.active()
    status, document = refused(stage.api, stage.key(role), allocation)
    assert (status, document["code"], document["roles_required"]) == (403, "role_required", ["admin", "member"])
    assert stage.sessions(allocation) == []


def test_strangers_and_malformed_paths_are_refused_before_the_upgrade(stage: ConsoleStage) -> None:
    allocation, key = stage.active(), stage.key()
    assert refused(stage.api, None, allocation)[1]["code"] == "unauthenticated"
    assert refused(stage.api, "berth_00000000_nothing", allocation)[1]["code"] == "unauthenticated"
    assert refused(stage.api, key, "no-id")[1]["code"] == "not_found"
    assert refused(stage.api, key, f"{allocation}/x")[1]["code"] == "not_found"
    stage.execute("update api_keys set revoked_at = clock_timestamp() where prefix = %s", key[6:14])


def test_what_has_no_console_says_which_bound_it_is(stage: ConsoleStage) -> None:
    allocation, key = stage.active(), stage.key()
    node = stage.node_of(allocation)
    stage.execute("update nodes set agent_features = '{burn_in}' where id = %s", node)
    status, document = refused(stage.api, key, allocation)
    assert (status, document["code"], "0.1" in document["detail"]) == (409, "console_unsupported", True)
    stage.execute("update nodes set agent_features = '{console}', online = false where id = %s", node)
    assert refused(stage.api, key, allocation)[1]["state"] == "offline"
    stage.execute("update nodes set online = true where id = %s", node)
    assert stage.sessions(allocation) == []


def test_the_agent_of_another_node_gets_nothing(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = waiting(socket)
        digest = stage.issue(session_id)
        thief = stage.dial(stage.certificate(other_node(stage, stage.node_of(allocation)).id))
        thief.hello(session_id, digest)
        assert is_refused(thief)
        rightful = stage.dial(stage.certificate(stage.node_of(allocation)))
        rightful.hello(session_id, digest)
        welcome = rightful.receive()
        assert welcome is not None, "a thief does not spoil the session"
        assert hashlib.sha256(welcome[1]).hexdigest() == digest
        rightful.send(DATA, b"still here")
        output_until(socket, b"still here")


def test_a_wrong_hash_gets_nothing(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = waiting(socket)
        digest = stage.issue(session_id)
        certificate = stage.certificate(stage.node_of(allocation))
        for wrong in ("0" * 64, hashlib.sha256(digest.encode()).hexdigest()):
            link = stage.dial(certificate)
            link.hello(session_id, wrong)
            assert is_refused(link)
        assert stage.sessions(allocation)[0]["attached_at"] is None


def test_a_session_is_joined_once(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = waiting(socket)
        first = stage.joined(session_id)
        (row,) = stage.sessions(allocation)
        again = stage.dial(stage.certificate(stage.node_of(allocation)))
        again.hello(session_id, row["secret_sha256"])
        assert is_refused(again)
        first.send(DATA, b"the first one")
        output_until(socket, b"the first one")
    stage.ended(session_id)
    late = stage.dial(stage.certificate(stage.node_of(allocation)))
    late.hello(session_id, row["secret_sha256"])
    assert is_refused(late), "and not after its end"


def test_an_agent_that_is_early_gets_nothing(stage: ConsoleStage) -> None:
    """Before the worker has signed the task no agent can know of the session."""
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = waiting(socket)
        (row,) = stage.sessions(allocation)
        early = stage.dial(stage.certificate(stage.node_of(allocation)))
        early.hello(session_id, row["secret_sha256"])
        assert is_refused(early)
        assert stage.joined(session_id)


def test_a_certificate_that_is_unknown_or_revoked_gets_nothing(stage: ConsoleStage) -> None:
    allocation = stage.active()
    node = stage.node_of(allocation)
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = waiting(socket)
        digest = stage.issue(session_id)
        unknown = stage.dial(stage.certificate(node, recorded=False))
        unknown.hello(session_id, digest)
        assert is_refused(unknown)
        revoked = stage.certificate(node)
        stage.execute(
            "update node_certificates set revoked_at = clock_timestamp() where node_id = %s and serial = %s",
            node, revoked.stem,
        )  # fmt: skip
        link = stage.dial(revoked)
        link.hello(session_id, digest)
        assert is_refused(link)


def test_a_client_without_a_certificate_is_refused_by_tls(stage: ConsoleStage) -> None:
    link = stage.dial(None)  # in TLS 1.3 the client learns of the refusal when it reads
    assert is_refused(link)
    assert stage.metric('berth_api_console_links_total{outcome="handshake"}') >= 1


def test_connections_without_a_certificate_take_no_place_of_a_session(stage: ConsoleStage) -> None:
    where = ("127.0.0.1", stage.endpoints.console_port)
    with attached(stage.api, stage.key(), stage.active()) as socket, ExitStack() as silent:
        session_id = waiting(socket)
        digest = stage.issue(session_id)
        (row,) = stage.rows("select node_id from console_sessions where id = %s", uuid.UUID(session_id))
        certificate = stage.certificate(row["node_id"])
        for _ in range(300):  # more than the sessions of the process and all that may wait beside them
            silent.enter_context(create_connection(where, timeout=SECONDS_MAX))
        rightful = stage.dial(certificate)
        rightful.hello(session_id, digest)
        welcome = rightful.receive()
        assert welcome is not None
        assert welcome[0] == WELCOME
        assert stage.metric('berth_api_console_links_total{outcome="too_many"}') >= 200


def test_a_flood_from_another_source_cuts_off_no_agent(stage: ConsoleStage) -> None:
    """The agent's handshake begins after hundreds of newer connections, which say nothing or send half a ClientHello."""
    where = ("127.0.0.1", stage.endpoints.console_port)
    certificate = stage.certificate(stage.seeded.nodes[0].id)
    with ExitStack() as flood:
        connected = create_connection(where, timeout=SECONDS_MAX)
        for number in range(300):
            hostile = flood.enter_context(create_connection(where, SECONDS_MAX, source_address=("127.0.0.2", 0)))
            if number % 2:
                hostile.sendall(HALF_HELLO)
        wait_for(
            lambda: stage.metric('berth_api_console_links_total{outcome="too_many"}') >= 200, "the flood to be cut off"
        )
        link = stage.dial(certificate, connected)
        assert link.connection.version() is not None, "its handshake is done"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        HELLO + (2**31).to_bytes(4, "big"),
        HELLO + (2).to_bytes(4, "big") + b"{}",
        DATA + (1).to_bytes(4, "big") + b"x",
        WELCOME + (0).to_bytes(4, "big"),
        HELLO + (4).to_bytes(4, "big") + b"\xff\xfe\x00\x01",
    ],
)
def test_what_is_no_hello_ends_the_connection(stage: ConsoleStage, sent: bytes) -> None:
    link = stage.dial(stage.certificate(stage.seeded.nodes[0].id))
    link.connection.sendall(sent)
    assert is_refused(link)


@pytest.mark.parametrize(
    "sent",
    [
        HELLO + (2).to_bytes(4, "big") + b"{}",
        DATA + (2**20).to_bytes(4, "big"),
        b"?" + (0).to_bytes(4, "big"),
        b"E" + (3).to_bytes(4, "big") + b"{}x",
        b"L" + (1).to_bytes(4, "big") + b"x",
        b"L" + (8).to_bytes(4, "big") + b"\xff" * 8,
    ],
)
def test_what_is_no_frame_ends_the_session(stage: ConsoleStage, sent: bytes) -> None:
    with attached(stage.api, stage.key(), stage.active()) as socket:
        session_id = waiting(socket)
        stage.joined(session_id).connection.sendall(sent)
        row = stage.ended(session_id)
        assert row["reason"] == "agent_lost"


@pytest.mark.full
def test_counts_beyond_any_number_do_not_keep_the_end_from_being_recorded(stage: ConsoleStage) -> None:
    with attached(stage.api, stage.key(), stage.active()) as socket:
        session_id = waiting(socket)
        agent = stage.joined(session_id)
        for _ in range(1_100):  # more than the greatest number of the column
            agent.connection.sendall(counted(INTEGER_MAX))
        agent.end()
        row = stage.ended(session_id)
    assert (row["reason"], row["bytes_dropped"]) == ("guest_ended", INTEGER_MAX)


def test_a_browser_sends_its_key_as_a_subprotocol_and_reads_why_not(stage: ConsoleStage) -> None:
    allocation = stage.active()
    protocols = ["berth.console.v1", f"berth.bearer.{stage.key()}"]
    with attached(stage.api, None, allocation, subprotocols=protocols) as socket:
        assert socket.subprotocol == "berth.console.v1"
        waiting(socket)
    protocols[1] = f"berth.bearer.{stage.key('viewer')}"
    with attached(stage.api, None, allocation, subprotocols=protocols) as socket:
        assert json.loads(socket.recv())["code"] == "role_required"
