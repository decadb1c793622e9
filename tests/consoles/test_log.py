"""`GET /api/v1/allocations/{id}/console`: a part of the log, as the node's agent sends it."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from node_agent.wire.console import DATA, END, FRAME_BYTES_MAX
from tests.allocations.seeding import add_tenant, connect
from tests.consoles.stage import AgentLink, ConsoleStage
from tests.consoles.talking import attached, message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for


def read(stage: ConsoleStage, key: str, allocation_id: uuid.UUID, **query: Any) -> httpx.Response:
    return httpx.get(
        f"{stage.api}/api/v1/allocations/{allocation_id}/console", params=query,
        headers={"authorization": f"Bearer {key}"}, timeout=WAIT_SECONDS_MAX,
    )  # fmt: skip


def read_from(
    stage: ConsoleStage, allocation_id: uuid.UUID, play: Callable[[AgentLink], None], **query: Any
) -> httpx.Response:
    """The response, while `play` is the agent."""
    found: list[httpx.Response] = []
    key = stage.key()
    reading = threading.Thread(target=lambda: found.append(read(stage, key, allocation_id, **query)))
    reading.start()

    def waiting() -> list[uuid.UUID]:
        found = stage.sessions(allocation_id)
        return [one["id"] for one in found if one["mode"] == "log" and one["ended_at"] is None]

    wait_for(lambda: waiting() != [], "the session")
    play(stage.joined(waiting()[0]))
    reading.join()
    return found[0]


def log_end(link: AgentLink, offset: int | None, reason: str = "log_sent") -> None:
    said = {"reason": reason} if offset is None else {"reason": reason, "offset": offset}
    link.send(END, json.dumps(said).encode())


def test_a_part_of_the_log_is_read(stage: ConsoleStage) -> None:
    allocation = stage.active()

    def play(link: AgentLink) -> None:
        link.send(DATA, b"a" * FRAME_BYTES_MAX)
        link.send(DATA, b"\x00\xff")
        log_end(link, 100)

    answer = read_from(stage, allocation, play, offset=100, bytes_max=20_000)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    data = base64.b64decode(document.pop("data"))
    assert data == b"a" * FRAME_BYTES_MAX + b"\x00\xff"
    assert document == {"allocation_id": str(allocation), "offset": 100, "next_offset": 100 + len(data)}
    (row,) = stage.sessions(allocation)
    assert (row["mode"], row["reason"], row["log_offset"], row["log_bytes_max"], row["bytes_to_tenant"]) == (
        "log", "log_sent", 100, 20_000, len(data),
    )  # fmt: skip
    actions = stage.rows("select action from audit_pending where subject = %s order by id", f"allocations/{allocation}")
    assert [one["action"] for one in actions][-2:] == ["allocation.console", "allocation.console_end"]


def test_the_log_is_read_while_someone_is_attached(stage: ConsoleStage) -> None:
    allocation = stage.active()
    with attached(stage.api, stage.key(), allocation) as socket:
        session_id = message(socket)["session_id"]
        stage.joined(session_id)
        answer = read_from(stage, allocation, lambda link: log_end(link, 0))
        assert (answer.status_code, answer.json()["data"]) == (200, "")
    stage.ended(session_id)


@pytest.mark.parametrize(
    ("play", "status", "code"),
    [
        (lambda link: log_end(link, None, "no_guest"), 409, "invalid_state"),
        (lambda link: log_end(link, None), 503, "console_unavailable"),
        (lambda link: link.connection.close(), 503, "console_unavailable"),
        (lambda link: link.connection.sendall(b"?" * 20), 503, "console_unavailable"),
        (lambda link: [link.send(DATA, b"x" * FRAME_BYTES_MAX) for _ in range(3)], 503, "console_unavailable"),
    ],
)
def test_an_agent_that_sends_no_log(
    stage: ConsoleStage, play: Callable[[AgentLink], None], status: int, code: str
) -> None:
    answer = read_from(stage, stage.active(), play, bytes_max=20_000)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_role_that_may_not_write_may_not_read_a_console(stage: ConsoleStage) -> None:
    allocation = stage.active()
    assert read(stage, stage.key("viewer"), allocation).json()["code"] == "role_required"
    with connect(stage.url) as connection:
        rival = stage.key("admin", add_tenant(connection, f"rival-{uuid.uuid4()}").tenant_id)
    assert read(stage, rival, allocation).status_code == 404
    assert stage.sessions(allocation) == []


@pytest.mark.parametrize(
    "query", [{"bytes_max": 0}, {"bytes_max": 2**30}, {"offset": "x"}, {"offset": 2**60}, {"tail": 1}]
)
def test_a_query_that_is_wrong_is_refused(stage: ConsoleStage, query: dict[str, Any]) -> None:
    assert read(stage, stage.key(), uuid.uuid4(), **query).json()["code"] == "invalid"
