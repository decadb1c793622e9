"""An API process that the test plays: it listens for the agent with a certificate of the node CA."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from berth.local.servers import free_port
from node_agent.protocol import ResultReport, TaskBody, TaskType
from node_agent.wire.console import (
    DATA,
    DROPPED,
    END,
    HELLO,
    WELCOME,
    ConsoleHello,
    ConsoleReport,
    count_of,
    frame,
    read_frame,
)
from tests.node_agent.control_plane import ControlPlane

SECONDS_MAX = 30.0


class Joined:
    """The connection of an agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.dropped = 0

    async def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.writer.write(frame(kind, payload))
        await self.writer.drain()

    async def output_until(self, wanted: bytes) -> bytes:
        data = b""
        async with asyncio.timeout(SECONDS_MAX):
            while wanted not in data:
                found = await read_frame(self.reader)
                assert found is not None, data
                data += found[1] if found[0] == DATA else b""
        return data

    async def end(self) -> dict[str, Any] | None:
        """What the agent says at the end; None if it says nothing. Output before it is passed over."""
        async with asyncio.timeout(SECONDS_MAX):
            try:
                while (found := await read_frame(self.reader)) is not None:
                    if found[0] == DROPPED:
                        self.dropped += count_of(found[1])
                    if found[0] == END:
                        content: dict[str, Any] = json.loads(found[1])
                        return content
            except (OSError, Exception):  # noqa: BLE001 - a killed agent ends within a frame
                return None
        return None


class PlayedProcess:
    """Listens for agents and welcomes them with the secret of their session, or with another."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.port = free_port()
        self.secret = os.urandom(32)
        self.welcome = self.secret
        self.arrived: asyncio.Queue[Joined] = asyncio.Queue()
        self.peers: list[str] = []

    def order(self, allocation_id: uuid.UUID, **changes: Any) -> dict[str, Any]:
        """The parameters of a task."""
        return {
            "session_id": str(uuid.uuid4()), "allocation_id": str(allocation_id), "mode": "attach", "host": "127.0.0.1",
            "port": self.port, "secret_sha256": hashlib.sha256(self.secret).hexdigest(),
            "dial_until": (self.plane.now() + timedelta(seconds=10)).isoformat(), "offset": 0, "bytes_max": 0, **changes,
        }  # fmt: skip

    def task(self, allocation_id: uuid.UUID, seconds: float = 60.0, **changes: Any) -> TaskBody:
        expires = self.plane.now() + timedelta(seconds=seconds)
        return self.plane.body(TaskType.CONSOLE_ATTACH, self.order(allocation_id, **changes), expires_at=expires)

    async def attach(self, allocation_id: uuid.UUID, **options: Any) -> tuple[uuid.UUID, Joined]:
        """Hand out a task; its id, and the agent's connection."""
        task_id = await self.plane.hand_out(self.task(allocation_id, **options))
        async with asyncio.timeout(SECONDS_MAX):
            return task_id, await self.arrived.get()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[PlayedProcess]:
        certificate, key, ca = self.plane._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(dict(writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"])["URI"])
        first = await read_frame(reader)
        assert first is not None
        assert first[0] == HELLO
        hello = ConsoleHello.model_validate_json(first[1])
        assert hello.secret_sha256 == hashlib.sha256(self.secret).hexdigest()
        writer.write(frame(WELCOME, self.welcome))
        await self.arrived.put(Joined(reader, writer))


def report_of(result: ResultReport) -> ConsoleReport:
    assert result.outcome == "completed", result
    return ConsoleReport.model_validate(result.result)
