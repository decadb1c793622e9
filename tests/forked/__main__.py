"""`python -m tests.forked <module> <descriptor>`: forks processes that become `python -m <module> [arguments]`.

What `<module>` imports is imported once. Each request on the socket names the module to run (it, or a launcher of it), its
arguments, environment, directory, standard streams and whether it gets its own session; the answer is the pid. The new
process is no child of this one: its parent ends at once, so that it becomes a child of the test's process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from dataclasses import dataclass

PID_BYTES = 8
LENGTH_BYTES = 8
STREAMS = 3
CHOSEN_LATER = {"worker": ("worker.app", "worker.webhooks.app")}
"""What a module imports only once it has read its arguments."""


@dataclass(frozen=True)
class Request:
    """What a process is started with. `streams` are its descriptors for 0, 1 and 2."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    own_session: bool


def main() -> None:
    """Serve requests until the socket is closed; in each new process, become what was asked for."""
    module, requests = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the test's process ends this one
    gc.disable()
    with contextlib.suppress(Exception):  # the process fails at the same import, and says so
        for name in (f"{module}.__main__", *CHOSEN_LATER.get(module, ())):
            importlib.import_module(name)
    sys.modules.pop(f"{module}.__main__", None)
    gc.freeze()  # otherwise the first collection in each process would copy all of it
    while (received := _receive(requests)) is not None:
        request, streams = received
        if _fork(requests, request, streams):
            signal.signal(signal.SIGINT, on_interrupt)
            runpy.run_module(request.module, run_name="__main__", alter_sys=True)
            return


def _receive(requests: socket.socket) -> tuple[Request, list[int]] | None:
    header, streams, _, _ = socket.recv_fds(requests, LENGTH_BYTES, STREAMS)
    if not header:
        return None
    body = b""
    while len(body) < int.from_bytes(header):
        body += requests.recv(int.from_bytes(header) - len(body))
    return Request(**json.loads(body)), streams


def _fork(requests: socket.socket, request: Request, streams: list[int]) -> bool:
    """Whether this is the new process; the old one has answered its pid, or nothing if the new one could not begin."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork():
            os._exit(0)
        requests.close()
        os.close(reading)
        _prepare(request, streams)
        os.write(writing, os.getpid().to_bytes(PID_BYTES))
        os.close(writing)
        return True
    os.close(writing)
    os.waitpid(between, 0)
    requests.sendall(os.read(reading, PID_BYTES) or bytes(PID_BYTES))
    for descriptor in (reading, *streams):
        os.close(descriptor)
    return False


def _prepare(request: Request, streams: list[int]) -> None:
    if request.own_session:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    gc.enable()
    sys.path[0] = request.directory
    sys.argv = [request.module, *request.arguments]


if __name__ == "__main__":
    main()
