"""Sessions are bounded: how many, how long, how fast, and how much waits for a client that does not read."""

from __future__ import annotations

import socket as sockets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from node_agent.wire.console import DATA, FRAME_BYTES_MAX, frame
from orchestrator.consoles.pace import Pace
from tests.consoles.conftest import BOUNDS
from tests.consoles.stage import ConsoleStage, console_stage
from tests.consoles.talking import attached, ending, message, refused
from tests.support.waiting import wait_for

# A session ends by the bound that is tested only if no other one can be reached before.
PATIENT = {
    **BOUNDS, "BERTH_CONSOLE_DIAL_SECONDS": "60", "BERTH_CONSOLE_IDLE_SECONDS": "60", "BERTH_CONSOLE_SESSION_SECONDS": "120",
    "BERTH_CONSOLE_SESSIONS_MAX": "2", "BERTH_CONSOLE_OUTPUT_BYTES_PER_SECOND": "1000000000",
}  # fmt: skip
GROWTH_BYTES_MAX = 24 * 2**20
"""More than the buffers of one session and of its connections; far less than what is sent."""
Bounded = Callable[..., ConsoleStage]


@pytest.fixture
def bounded(database_url: str, tmp_path: Path) -> Iterator[Bounded]:
    """Start a process whose bounds of these names are reached soon."""
    with ExitStack() as started:

        def start(**soon: str) -> ConsoleStage:
            settings = PATIENT | {f"BERTH_CONSOLE_{name}_SECONDS": value for name, value in soon.items()}
            return started.enter_context(console_stage(database_url, tmp_path, **settings))

        yield start


def test_of_two_at_once_one_types(stage: ConsoleStage) -> None:
    allocation, key = stage.active(), stage.key()

    def attach(_: int) -> Any:
        try:
            return attached(stage.api, key, allocation)
        except InvalidStatus as refusal:
            return refusal.response.status_code, refusal.response.body

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(attach, range(6)))
    won = [one for one in found if not isinstance(one, tuple)]
    lost = [one for one in found if isinstance(one, tuple)]
    assert len(won) == 1
    assert {status for status, _ in lost} == {409}
    assert all(b"console_busy" in body for _, body in lost)
    assert len(stage.sessions(allocation)) == 1
    session_id = message(won[0])["session_id"]
    won[0].close()
    stage.ended(session_id)
    with attached(stage.api, key, allocation) as again:
        assert message(again)["type"] == "waiting"


def test_a_tenant_has_so_many_sessions(stage: ConsoleStage) -> None:
    key, open_ones = stage.key(), []
    for _ in range(3):
        socket = attached(stage.api, key, stage.active())
        open_ones.append((socket, message(socket)["session_id"]))
    status, document = refused(stage.api, key, stage.active())
    assert (status, document["code"]) == (429, "too_many_consoles")
    for socket, session_id in open_ones:
        socket.close()
        stage.ended(session_id)


def test_a_process_has_so_many_sessions(bounded: Bounded) -> None:
    short = bounded()
    allocations = [short.active() for _ in range(3)]
    key = short.key()
    with attached(short.api, key, allocations[0]) as one, attached(short.api, key, allocations[1]) as two:
        assert refused(short.api, key, allocations[2])[1]["code"] == "too_many_consoles"
        assert short.metric('berth_api_consoles_refused_total{code="process"}') >= 1
        assert {message(one)["type"], message(two)["type"]} == {"waiting"}


def test_without_an_agent_the_session_ends(bounded: Bounded) -> None:
    short = bounded(DIAL="0.5")
    with attached(short.api, short.key(), short.active()) as socket:
        session_id = message(socket)["session_id"]
        assert ending(socket) == (4503, "agent_absent")
    assert short.ended(session_id)["reason"] == "agent_absent"


def test_silence_ends_the_session(bounded: Bounded) -> None:
    short = bounded(IDLE="0.7")
    with attached(short.api, short.key(), short.active()) as socket:
        session_id = message(socket)["session_id"]
        short.joined(session_id)
        assert ending(socket) == (1000, "idle")
    assert short.ended(session_id)["reason"] == "idle"


@pytest.mark.full
def test_a_session_that_is_never_silent_ends_too(bounded: Bounded) -> None:
    short = bounded(SESSION="5")
    with attached(short.api, short.key(), short.active()) as socket:
        session_id = message(socket)["session_id"]
        agent = short.joined(session_id)
        try:
            while True:
                agent.send(DATA, b".")
                socket.recv(10)
        except (ConnectionClosed, OSError):
            pass
    assert short.ended(session_id)["reason"] == "deadline"


@pytest.mark.full
def test_a_flood_beside_a_slow_reader_takes_no_memory(bounded: Bounded) -> None:
    """The process stops to read the agent, which drops what finds no room; a client that reads nothing is cut off."""
    short = bounded(STALL="0.4")
    assert short.process.process is not None
    watched = psutil.Process(short.process.process.pid)
    with attached(short.api, short.key(), short.active(), max_queue=1) as socket:
        socket.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        session_id = message(socket)["session_id"]
        agent = short.joined(session_id)
        before = watched.memory_info().rss
        agent.connection.settimeout(0.5)
        sent, piece = 0, frame(DATA, b"x" * FRAME_BYTES_MAX)
        try:
            while sent < 2**30:
                agent.connection.sendall(piece)
                sent += len(piece)
        except (TimeoutError, OSError):
            pass
        assert sent < 2**30, "the process cuts the agent off"
        assert watched.memory_info().rss - before < GROWTH_BYTES_MAX
        assert short.ended(session_id)["reason"] == "slow_client"
    wait_for(lambda: short.metric("berth_api_consoles_open") == 0, "the session to be gone")


def test_a_pace_lets_a_burst_pass_and_then_waits() -> None:
    now = 100.0
    pace = Pace(1_000, lambda: now)
    assert pace.debt_seconds(1_000) == 0
    assert pace.debt_seconds(500) == pytest.approx(0.5)
    now = 200.0
    assert pace.debt_seconds(1_000) == 0, "and saves up no more than a second"
    assert pace.debt_seconds(2_000) == pytest.approx(2.0)
