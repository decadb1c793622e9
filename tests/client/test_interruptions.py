"""An interrupted write reports its idempotency key, in the exception and on the terminal."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.client import AsyncClient, Client, parse_key
from tests.berth.commands import environment

ID = "00000000-0000-0000-0000-000000000007"
KEY = re.compile(rb"(?i)idempotency-key: *([^\r]+)")
WAIT_SECONDS_MAX = 60.0
AS_AT_A_TERMINAL = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import berth.cli.main
berth.cli.main.run()
"""
"""A background process starts with interrupts ignored, and so do its children."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(WAIT_SECONDS_MAX)
        yield silent


def _address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _take_time(listener: socket.socket) -> None:
    """Answer the question what time it is."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def _take_key(listener: socket.socket) -> tuple[socket.socket, str]:
    """The key of the write that comes, and the connection, to be left open."""
    connection, _ = listener.accept()
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536)
    found = KEY.search(data)
    assert found is not None
    return connection, found[1].decode()


def test_a_cancelled_task_carries_the_key(listener: socket.socket) -> None:
    async def play() -> tuple[list[str], str]:
        async with AsyncClient(_address(listener)) as client:
            asked = asyncio.create_task(client.confirm_reservation(_id(), holder_id="me"))
            await asyncio.to_thread(_take_time, listener)
            connection, key = await asyncio.to_thread(_take_key, listener)
            asked.cancel()
            with connection, pytest.raises(asyncio.CancelledError) as cancelled:
                await asked
            return cancelled.value.__notes__, key

    notes, key = asyncio.run(play())
    assert notes == [f"idempotency key: {key}"]
    assert parse_key(key) is not None


def test_what_the_function_for_the_key_raises_carries_it(listener: socket.socket) -> None:
    def ask() -> str:
        raise LookupError("no token today")

    with Client(_address(listener), ask) as client, pytest.raises(LookupError) as raised:
        client.confirm_reservation(_id(), holder_id="me", idempotency_key="mine")
    assert raised.value.__notes__ == ["idempotency key: mine"]


def test_the_terminal_names_the_key(listener: socket.socket, tmp_path: Path) -> None:
    settings = {"BERTH_API_URL": _address(listener), "BERTH_API_KEY": "k", "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", AS_AT_A_TERMINAL, "reserve", "confirm", ID, "--holder", "me"]
    process = subprocess.Popen(command, env=environment(**settings), stderr=subprocess.PIPE, text=True)
    _take_time(listener)
    connection, key = _take_key(listener)
    with connection:
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert process.returncode == 130
    assert len(said.strip().splitlines()) == 1, said
    assert said.startswith("berth: interrupted")
    assert key in said


def _id() -> uuid.UUID:
    return uuid.UUID(ID)
