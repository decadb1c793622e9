"""Subscribers over HTTP that lose their connection, close it themselves, and resume: what both transports have in common."""

from __future__ import annotations

import asyncio
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.campaign.history import History
from tests.campaign.listening.records import Heard, Session
from tests.support.waiting import pause

STAY_SECONDS = (0.5, 6.0)
"""How long a subscriber stays until it closes its connection itself."""
OPEN_SECONDS_MAX = 5.0
PACE_SECONDS = 0.2
OVERLAP_SHARE = 0.2
"""How often a subscriber resumes before its position on purpose."""
ENVELOPE = frozenset(
    {"version", "prev_version", "timestamp", "leader_id", "event_id", "event_type", "subject", "correlation_id",
     "tenant_id", "operation_key", "request_id", "type"}
)  # fmt: skip


class StayedLongEnough(Exception):
    """The subscriber closes its connection."""


class HttpSubscriber(ABC):
    """Everything up to `cursor` has arrived. `urls`: one API process each; `tenant` None: an operator.

    `types` is its filter. `stays`: how long it keeps a connection; None: until it is lost.
    """

    lost: tuple[type[Exception], ...] = (OSError, TimeoutError)

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
        self.name = name
        self.tenant = tenant
        self.cursor = 0
        self._ending = asyncio.Event()
        self._urls = urls
        self._key = key
        self._history = history
        self._types = tuple(types)
        self._stays = stays
        self._chance = random.Random(f"listening:{history.seed}:{name}")

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await self.read_once()
            await pause(PACE_SECONDS)

    async def read_once(self) -> Session:
        """One connection, until it is lost, refused, ended or closed."""
        session = Session(self.name, self.tenant, self.cursor, time.monotonic(), self._types)
        session.url = self._chance.choice(self._urls)
        with suppress(*self.lost, StayedLongEnough):
            await self._session(session, session.url)
        session.ended = time.monotonic()
        if session.refused == "log_truncated":
            await self._truncated(session)
        return session

    def read_to_the_end(self) -> None:
        """From now on it keeps its connection."""
        self._stays = None
        self._ending.set()

    @abstractmethod
    async def _session(self, session: Session, url: str) -> None:
        """Connect and take what arrives. Raises `StayedLongEnough` and what is in `lost`."""

    @abstractmethod
    async def _truncated(self, session: Session) -> None:
        """Go on behind what the log has dropped."""

    def _begin(self, session: Session) -> None:
        """The server has accepted the connection."""
        self._history.sessions.append(session)

    def _resume_after(self) -> int:
        """The version to resume after: the cursor, or some way before it."""
        if self._chance.random() < OVERLAP_SHARE:
            return max(0, self.cursor - self._chance.randrange(1, 10))
        return self.cursor

    def _patience(self) -> float:
        return 600.0 if self._stays is None else self._chance.uniform(*self._stays)

    def _take(self, session: Session, content: Mapping[str, Any]) -> None:
        session.events.append(heard_of(content))
        self.cursor = max(self.cursor, session.events[-1].version)

    def _take_checkpoint(self, session: Session, version: int) -> None:
        session.scanned_to = max(session.scanned_to, version)
        self.cursor = max(self.cursor, version)

    def _refused(self, session: Session, code: str, first_version: object) -> None:
        session.refused = code
        session.first_version = first_version if isinstance(first_version, int) else None
        self._history.count_read(f"subscribe {code}")


def heard_of(content: Mapping[str, Any]) -> Heard:
    """An event of the feed or of a socket, as it was sent."""
    is_transaction = content["event_type"] == "transaction"
    return Heard(
        int(content["version"]),
        content.get("prev_version"),
        content["event_id"],
        content["event_type"],
        content.get("tenant_id"),
        content.get("operation_key"),
        {name: value for name, value in content.items() if name not in ENVELOPE} if is_transaction else content["data"],
    )


def problem_of(body: bytes | str) -> dict[str, Any]:
    """The members of a problem document; nothing where it is none."""
    try:
        problem = json.loads(body or b"{}")
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


async def within(seconds: float, work: Any) -> Any:
    """The result of `work`. Raises `StayedLongEnough` when the time is up."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise StayedLongEnough from None
