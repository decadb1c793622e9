"""Chosen ports: no two processes choose the same one, and servers can listen on them."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from berth.local.ports import LISTENING_PORTS, choose_port, keep_port
from berth.local.servers import answers, require_free_port
from tests.berth.commands import environment

CHOOSE = "import sys; from berth.local.ports import choose_port; print(choose_port(range(*map(int, sys.argv[1:]))))"


def chosen_elsewhere(first: int, last: int) -> str:
    """What another process gets that may choose among these ports."""
    command = [sys.executable, "-c", CHOOSE, str(first), str(last + 1)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout.strip()


def test_no_two_processes_choose_the_same_port() -> None:
    port = choose_port()
    assert port is not None
    assert port in LISTENING_PORTS
    assert choose_port(range(port, port + 1)) is None
    assert chosen_elsewhere(port, port) == "None"


def test_a_server_listens_on_a_chosen_port_and_on_none_that_is_busy() -> None:
    port = choose_port()
    assert port is not None
    assert not answers(port)
    for _ in range(2):  # and again after it has ended
        require_free_port(port, "it")
        with socket.create_server(("127.0.0.1", port)):
            assert answers(port)
            with pytest.raises(OSError, match="in use"):
                socket.create_server(("127.0.0.1", port))


def test_a_kept_port_is_never_chosen() -> None:
    port = int(chosen_elsewhere(LISTENING_PORTS.start, LISTENING_PORTS.stop - 1))
    assert chosen_elsewhere(port, port) == str(port)
    keep_port(port)
    keep_port(port)
    assert chosen_elsewhere(port, port) == "None"
