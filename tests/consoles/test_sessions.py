"""A session joins a tenant with the agent of the allocation's node, counts bytes, and ends for one reason that is recorded."""

from __future__ import annotations

import base64

import pytest
from websockets.exceptions import ConnectionClosed

from node_agent.protocol import TaskBody
from node_agent.wire.console import DATA, END, ConsoleParameters, counted
from orchestrator.operations.execution import Context
from tests.allocations.driving import release, run_with
from tests.consoles.stage import ConsoleStage
from tests.consoles.talking import attached, ending, message, output_until


def test_bytes_pass_both_ways_and_are_counted_never_kept(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        waiting = message(socket)
        agent = stage.joined(waiting["session_id"])
        assert message(socket)["type"] == "begin"
        agent.send(DATA, b"login: \xff\x00")
        assert output_until(socket, b"\x00") == b"login: \xff\x00"
        socket.send(b"secret-word\r")
        agent.received_until(b"secret-word\r")
        agent.connection.sendall(counted(77))
        assert message(socket) == {"type": "dropped", "bytes": 77}
        agent.end()
        assert ending(socket) == (1000, "guest_ended")
    row = stage.ended(waiting["session_id"])
    assert (row["reason"], row["bytes_to_guest"], row["bytes_to_tenant"], row["bytes_dropped"]) == (
        "guest_ended", 12, 9, 77,
    )  # fmt: skip
    assert agent.receive() is None or agent.receive() is None, "the process lets go of the agent"
    for statement in ("select s::text as t from console_sessions s", "select a::text as t from audit_pending a"):
        assert not any("secret-word" in found["t"] or "login" in found["t"] for found in stage.rows(statement))
    assert "secret-word" not in stage.process.log.read_text()
    audited = stage.rows(
        "select action, principal_kind, detail from audit_pending where subject = %s order by id",
        f"allocations/{allocation}",
    )
    assert [(one["action"], one["principal_kind"]) for one in audited][-2:] == [
        ("allocation.console", "tenant"), ("allocation.console_end", "tenant"),
    ]  # fmt: skip
    assert audited[-1]["detail"]["bytes_to_guest"] == 12


def test_the_task_names_session_process_and_hash_and_no_secret(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        digest = stage.issue(session_id)
        (row,) = stage.sessions(allocation)
        (task,) = stage.rows("select * from node_tasks where id = %s", row["task_id"])
        body = TaskBody.model_validate_json(base64.b64decode(task["envelope"]["payload"]))
        order = ConsoleParameters.model_validate(body.parameters)
        assert (body.type, body.allocation_id, body.node_id) == ("console.attach", None, stage.node_of(allocation))
        assert (str(order.session_id), order.allocation_id, order.mode) == (session_id, allocation, "attach")
        assert (order.host, order.port, order.secret_sha256) == ("127.0.0.1", stage.endpoints.console_port, digest)
        assert body.not_before < order.dial_until < body.expires_at
    assert stage.ended(session_id)["reason"] == "tenant_ended"
    (task,) = stage.rows("select * from node_tasks where id = %s", row["task_id"])
    assert task["state"] == "superseded", "no agent serves a session that is over"


def test_the_end_of_the_allocation_ends_the_session(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        agent = stage.joined(session_id)
        assert message(socket)["type"] == "begin"

        async def end(context: Context) -> None:
            await release(context, stage.seeded, allocation)

        run_with(stage.url, end)
        assert ending(socket) == (1000, "released")
    assert stage.ended(session_id)["reason"] == "released"
    found = agent.receive()
    assert found is not None
    assert found[0] == END


@pytest.mark.parametrize(
    "change", ["identity_conflict_at = clock_timestamp()", "epoch = epoch + 1"], ids=["conflict", "epoch"]
)
def test_a_node_that_loses_its_identity_ends_the_session(stage: ConsoleStage, change: str) -> None:
    allocation = stage.active()
    node = stage.node_of(allocation)
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        stage.joined(session_id)
        assert message(socket)["type"] == "begin"
        stage.execute(f"update nodes set {change} where id = %s", node)
        assert ending(socket) == (4503, "agent_lost")
    stage.execute("update nodes set identity_conflict_at = null where id = %s", node)
    assert stage.ended(session_id)["reason"] == "agent_lost"


def test_a_revoked_key_ends_the_session(stage: ConsoleStage) -> None:
    allocation, key = stage.active(), stage.key()
    with attached(stage.api, key, allocation) as socket:
        session_id = message(socket)["session_id"]
        stage.joined(session_id)
        assert message(socket)["type"] == "begin"
        stage.execute("update api_keys set revoked_at = clock_timestamp() where prefix = %s", key[6:14])
        assert ending(socket) == (4401, "unauthenticated")
    assert stage.ended(session_id)["reason"] == "unauthenticated"


def test_an_agent_that_goes_away_ends_the_session(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        agent = stage.joined(session_id)
        assert message(socket)["type"] == "begin"
        agent.connection.close()
        assert ending(socket) == (4503, "agent_lost")
    assert stage.ended(session_id)["reason"] == "agent_lost"


def test_a_text_message_ends_the_session(stage: ConsoleStage) -> None:
    with attached(stage.api, stage.key(), stage.active()) as socket:
        message(socket)
        socket.send("text")
        assert ending(socket) == (1008, "message_refused")


def test_a_second_session_is_refused_and_a_later_one_is_not(stage: ConsoleStage) -> None:
    allocation, key = stage.active(), stage.key()
    with attached(stage.api, key, allocation) as socket:
        first = message(socket)["session_id"]
    assert stage.ended(first)["reason"] == "tenant_ended"
    with attached(stage.api, key, allocation) as socket:
        begun_id = message(socket)["session_id"]
        assert begun_id != first


@pytest.mark.parametrize("reason", ["released", "tenant_ended", "whatever"])
def test_an_agent_names_no_reason_of_another(stage: ConsoleStage, reason: str) -> None:
    with attached(stage.api, stage.key(), stage.active()) as socket:
        session_id = message(socket)["session_id"]
        agent = stage.joined(session_id)
        agent.end(reason)
        assert ending(socket)[1] == "agent_lost"
    assert stage.ended(session_id)["reason"] == "agent_lost"


def test_the_gauge_counts_open_sessions(stage: ConsoleStage) -> None:
    with attached(stage.api, stage.key(), stage.active()) as socket:
        session_id = message(socket)["session_id"]
        assert stage.metric('berth_api_consoles_open{mode="attach"}') == 1
    stage.ended(session_id)
    with pytest.raises(ConnectionClosed):
        socket.recv()
