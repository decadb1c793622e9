"""Subscribers of `GET /api/v1/notifications` under a name: the server stores what they acknowledge."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlencode

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, WebSocketException

from tests.campaign.history import History
from tests.campaign.listening.records import Session
from tests.campaign.listening.subscribers import (
    OPEN_SECONDS_MAX,
    PACE_SECONDS,
    STAY_SECONDS,
    HttpSubscriber,
    problem_of,
    within,
)
from tests.support.waiting import pause

ACKNOWLEDGED_SHARE = 0.5
"""How often an event is acknowledged, with all before it, where the last acknowledgement was long enough ago."""
ACKNOWLEDGE_SECONDS = 0.2
"""The least time between two, because their rate is limited."""


class SocketSubscriber(HttpSubscriber):
    """Acknowledges some of what arrives; after a lost connection the server repeats the rest.

    `acked`: the highest version that the server has confirmed as stored.
    """

    lost = (OSError, TimeoutError, WebSocketException, httpx.HTTPError)

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        key: str,
        tenant: str | None,
        history: History,
        types: Sequence[str] = (),
        stays: tuple[float, float] | None = STAY_SECONDS,
    ) -> None:
        super().__init__(name, urls, key, tenant, history, types, stays)
        self._subscription = name.replace(" ", "-")
        self._created_after = 0
        self.acked = self._acknowledged = self._created_after
        self._acknowledged_at = 0.0

    async def _session(self, session: Session, url: str) -> None:
        query = [("subscription", self._subscription), ("after", str(self._created_after))]
        query += [("types", one) for one in self._types]
        session.acked, session.acknowledged = self.acked, self._acknowledged
        address = f"ws{url.removeprefix('http')}/api/v1/notifications?{urlencode(query)}"
        headers = {"Authorization": f"Bearer {self._key}"}
        try:
            async with connect(
                address, additional_headers=headers, open_timeout=OPEN_SECONDS_MAX, close_timeout=1, ping_interval=3,
                ping_timeout=5, proxy=None,
            ) as socket:  # fmt: skip
                await self._read(session, socket)
        except InvalidStatus as refusal:
            problem = problem_of(bytes(refusal.response.body or b""))
            session.after = self.acked
            self._begin(session)
            status = f"http_{refusal.response.status_code}"
            self._refused(session, problem.get("code", status), problem.get("first_version"))

    async def _read(self, session: Session, socket: ClientConnection) -> None:
        leaves = time.monotonic() + self._patience()
        while True:
            message = json.loads(await within(leaves - time.monotonic(), socket.recv()))
            match message["type"]:
                case "begin":
                    session.after = int(message["after"])
                    self._begin(session)
                case "event":
                    self._take(session, message)
                    await self._acknowledge(socket, session.events[-1].version)
                case "checkpoint":
                    self._take_checkpoint(session, int(message["version"]))
                    await self._acknowledge(socket, session.scanned_to)
                case "acked":
                    self.acked = max(self.acked, int(message["version"]))
                case "error":
                    self._refused(session, message["code"], message.get("first_version"))
                    return

    async def _acknowledge(self, socket: ClientConnection, version: int) -> None:
        is_due = time.monotonic() - self._acknowledged_at >= ACKNOWLEDGE_SECONDS
        if is_due and self._chance.random() < ACKNOWLEDGED_SHARE:
            self._acknowledged_at = time.monotonic()
            self._acknowledged = max(self._acknowledged, version)
            await socket.send(json.dumps({"type": "ack", "version": version}))

    async def _truncated(self, session: Session) -> None:
        """As the documentation says: delete the subscription, and create it again where the log begins."""
        if session.first_version is None:
            return
        path = f"/api/v1/notifications/subscriptions/{self._subscription}"
        headers = {"Authorization": f"Bearer {self._key}", "Idempotency-Key": f"{self._subscription}-{session.began}"}
        async with httpx.AsyncClient(timeout=OPEN_SECONDS_MAX, headers=headers) as http:
            while True:
                with suppress(httpx.HTTPError):
                    response = await http.delete(f"{self._chance.choice(self._urls)}{path}")
                    if response.status_code in (204, 404):
                        break
                await pause(PACE_SECONDS)
        self._created_after = max(self.cursor, session.first_version - 1)
        self.cursor = self.acked = self._acknowledged = self._created_after
