"""The stub over HTTPS, with a certificate made for the test, and connections that break where the script says so."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path

from berth.local.machines.certificates import self_signed
from node_agent.redfish.client import RedfishBmc
from node_agent.redfish.contract import BmcAccess, Deadlines
from tests.support.bmc.clock import VirtualClock
from tests.support.bmc.machine import Options, StubMachine
from tests.support.bmc.service import Manner, Reply, Request, StubService
from tests.support.waiting import pause

# Short where a test waits for real; the rest passes on the virtual clock.
DEADLINES = Deadlines(
    connect_seconds=0.5, read_seconds=0.3, command_seconds=0.3, insert_seconds=0.3, settle_seconds=90, task_seconds=60
)


@functools.cache
def certificate(number: int) -> tuple[bytes, bytes, str]:
    """A self-signed certificate for 127.0.0.1: its PEM, its key's PEM and its SHA-256."""
    return self_signed(f"stub-bmc-{number}")


def server_context(number: int) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pair.pem"
        path.write_bytes(certificate(number)[0] + certificate(number)[1])
        context.load_cert_chain(path)
    return context


@dataclass
class Stub:
    """A served stub: its machine, its service and how to reach it."""

    service: StubService
    access: BmcAccess
    clock: VirtualClock

    @property
    def machine(self) -> StubMachine:
        return self.service.machine

    def client(
        self, *, quiet: bool = True, deadlines: Deadlines = DEADLINES, password: str | None = None
    ) -> RedfishBmc:
        access = self.access if password is None else replace(self.access, password=password)
        return RedfishBmc(access, deadlines, quiet=quiet, clock=self.clock)


@contextlib.asynccontextmanager
async def served(options: Options | None = None, certificate_number: int = 1, port: int = 0) -> AsyncIterator[Stub]:
    """Serve a stub on 127.0.0.1 until the block ends; then every connection is closed."""
    clock = VirtualClock()
    service = StubService(StubMachine(clock, options or Options()))
    async with serving(service, server_context(certificate_number), port) as bound:
        access = BmcAccess(f"https://127.0.0.1:{bound}", "berth", "first-secret", certificate(certificate_number)[2])
        yield Stub(service, access, clock)


@contextlib.asynccontextmanager
async def serving(service: StubService, context: ssl.SSLContext, port: int) -> AsyncIterator[int]:
    """Serve a service over TLS until the block ends; yields the port."""
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            while await _serve_one(service, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass  # the client or the test ended the connection
        finally:
            connections.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", port, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        if connections:
            await asyncio.wait(list(connections), timeout=5)


async def _serve_one(service: StubService, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """One request of a connection; False if the connection ends."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    reply = service.handle(Request(method, path, headers, body))
    if reply.manner is Manner.BROKEN:
        return False
    if reply.manner is Manner.SILENT:
        await reader.read()  # until the client gives up
        return False
    writer.write(_head(method, reply))
    if reply.manner is Manner.WHOLE:
        writer.write(b"" if method == "HEAD" else reply.body)
        await writer.drain()
        return headers.get("connection", "").lower() != "close"
    while not writer.is_closing():
        writer.write(b"a" * 65536 if reply.manner is Manner.ENDLESS else b" ")
        await writer.drain()
        await pause(0.02 if reply.manner is Manner.SLOW else 0)  # so that the loop notices a client that is gone
    return False


def _head(method: str, reply: Reply) -> bytes:
    length = {"Content-Length": str(len(reply.body))} if reply.manner is Manner.WHOLE and reply.status != 204 else {}
    headers = {"OData-Version": "4.0", "Cache-Control": "no-cache"} | reply.headers | length
    lines = [
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
