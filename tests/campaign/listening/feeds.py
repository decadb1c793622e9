"""Subscribers of `GET /v1/subscribe`: they resume after the last version that has arrived."""

from __future__ import annotations

import json
import time

import httpx

from berth.client.feed.event_frames import FrameReader
from tests.campaign.listening.records import Session
from tests.campaign.listening.subscribers import OPEN_SECONDS_MAX, HttpSubscriber, StayedLongEnough, problem_of, within

SILENCE_SECONDS_MAX = 10.0
"""An end that does not arrive is noticed so: a link that is cut reports nothing."""
LAST_EVENT_ID_SHARE = 0.3


class FeedSubscriber(HttpSubscriber):
    """Takes every frame as it arrives, repetitions included."""

    lost = (OSError, TimeoutError, httpx.HTTPError)

    async def _session(self, session: Session, url: str) -> None:
        session.after = self._resume_after()
        query: dict[str, int | tuple[str, ...]] = {"after": session.after, "types": self._types}
        timeout = httpx.Timeout(OPEN_SECONDS_MAX, read=SILENCE_SECONDS_MAX)
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "text/event-stream"}
        if self._chance.random() < LAST_EVENT_ID_SHARE:
            # As an EventSource resumes; it takes precedence over the query.
            headers["Last-Event-ID"], query["after"] = str(session.after), 0
        async with (
            httpx.AsyncClient(timeout=timeout) as http,
            http.stream("GET", f"{url}/v1/subscribe", params=query, headers=headers) as response,
        ):
            if not response.is_success:
                problem = problem_of(await response.aread())
                self._begin(session)
                self._refused(
                    session, problem.get("code", f"http_{response.status_code}"), problem.get("first_version")
                )
                return
            self._begin(session)
            await self._read(session, response)

    async def _read(self, session: Session, response: httpx.Response) -> None:
        leaves = time.monotonic() + self._patience()
        frames = FrameReader()
        chunks = response.aiter_raw()
        while (chunk := await within(leaves - time.monotonic(), anext(chunks, None))) is not None:
            for frame in frames.feed(chunk):
                content = json.loads(frame.data)
                if frame.kind == "end":
                    self._refused(session, content["reason"], None)
                    return
                if frame.kind == "checkpoint":
                    self._take_checkpoint(session, int(content["scanned_to"]))
                else:
                    self._take(session, content)
            if time.monotonic() > leaves:
                raise StayedLongEnough

    async def _truncated(self, session: Session) -> None:
        """Read the state from the API instead, and go on where the log begins."""
        if session.first_version is not None:
            self.cursor = max(self.cursor, session.first_version - 1)
