"""A connection to the application in this process that accepts no message from where a test says so, as a slow client's does."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from concurrent.futures import Future
from typing import Any

from starlette.testclient import TestClient

from tests.api.calling import Caller
from tests.log.streaming import StreamedEvent, parsed


class HeldConnection(ABC):
    """An ASGI connection. Once it is held, each message with an event waits until the test lets it through."""

    def __init__(self, caller: Caller, path: str, *, kind: str) -> None:
        assert isinstance(caller.http, TestClient)
        assert caller.http.portal is not None
        self.held = False
        self._texts: list[str] = []
        self._accepted = asyncio.Semaphore(0)
        self._call = caller.http.portal.call
        opening = {"type": "websocket.connect"} if kind == "websocket" else {"type": "http.request", "body": b""}
        self._given: list[MutableMapping[str, Any]] = [opening]
        scope = {
            "type": kind, "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": path,
            "raw_path": path.encode(), "root_path": "", "query_string": b"", "client": ("127.0.0.1", 50_000),
            "headers": [(b"host", b"testserver"), (b"authorization", f"Bearer {caller.key}".encode())],
            "server": ("testserver", 80), "scheme": "http", "subprotocols": [], "state": {},
        }  # fmt: skip
        app = caller.http.app

        async def serve() -> None:
            await app(scope, self._receive, self._send)

        self.ended: Future[None] = caller.http.portal.start_task_soon(serve)

    def let_through(self) -> None:
        """Accept the message that waits."""
        self._call(self._accepted.release)

    def begun(self) -> bool:
        """Whether the first message was sent."""
        return len(self._texts) > 1

    def versions(self) -> list[int]:
        """Versions of the events that were sent, with that of the one that waits."""
        return [int(one["version"]) for one in self._messages() if "event_id" in one]

    def end(self) -> dict[str, Any]:
        """The last message."""
        return self._messages()[-1]

    @abstractmethod
    def _messages(self) -> list[dict[str, Any]]: ...

    @abstractmethod
    def _text_of(self, message: Mapping[str, Any]) -> str: ...

    async def _receive(self) -> MutableMapping[str, Any]:
        if not self._given:
            await asyncio.Event().wait()
        return self._given.pop()

    async def _send(self, message: Mapping[str, Any]) -> None:
        before = len(self.versions())
        self._texts.append(self._text_of(message))
        if self.held and len(self.versions()) > before:
            await self._accepted.acquire()


class HeldStream(HeldConnection):
    """An open `GET /v1/subscribe`."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller, "/v1/subscribe", kind="http")

    def _messages(self) -> list[dict[str, Any]]:
        events = parsed(iter("".join(self._texts).splitlines()))
        return [one.data for one in events if isinstance(one, StreamedEvent) and one.event != "checkpoint"]

    def _text_of(self, message: Mapping[str, Any]) -> str:
        return bytes(message.get("body", b"")).decode()


class HeldSocket(HeldConnection):
    """An open `GET /api/v1/notifications`."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller, "/api/v1/notifications", kind="websocket")

    def _messages(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self._texts if text]

    def _text_of(self, message: Mapping[str, Any]) -> str:
        return str(message.get("text") or "")
