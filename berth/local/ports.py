"""Ports for processes that listen later, chosen so that no two choosers, in any process, get the same one.

A chosen port stays bound, without listening, for the life of the process that chose it. On Linux a port can be listened on
although another socket is bound to it, if both allow that (SO_REUSEADDR, which servers set); a process that binds without
allowing it is refused. So choosers bind without it, and allow it once the port is theirs.
"""

from __future__ import annotations

import secrets
import socket

LISTENING_PORTS = range(10_000, 32_768)
"""Below the range from which the system takes ports for outgoing connections: a port of that range would soon be some
connection's own end, and then no server could listen on it."""
TRIES_MAX = 200

_held: dict[int, socket.socket] = {}


def choose_port(ports: range = LISTENING_PORTS) -> int | None:
    """A port without listener, chooser or connection; no other process chooses it while this one runs.

    None if none was found among a bounded number of tries.
    """
    for port in secrets.SystemRandom().sample(ports, min(TRIES_MAX, len(ports))):
        chosen = _bound(port, shared=False)
        if chosen is not None:
            chosen.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _held[port] = chosen
            return port
    return None


def keep_port(port: int) -> None:
    """Keep this port from being chosen from now on; no effect if a process listens on it."""
    kept = None if port in _held else _bound(port, shared=True)
    if kept is not None:
        _held[port] = kept


def _bound(port: int, *, shared: bool) -> socket.socket | None:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        return None
    return bound
