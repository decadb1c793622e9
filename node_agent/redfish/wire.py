"""HTTP to one BMC: bounded reads that may be repeated, and commands that are sent once.

A command is a POST, PATCH or DELETE. It is sent once; a caller sends it again only after an answer that refuses it.
No answer, a broken connection, 3xx and 5xx but 503 are OutcomeUnknown.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import httpx

from berth.process.json_objects import JsonObject
from node_agent.redfish.clock import Clock
from node_agent.redfish.contract import BmcAccess, Deadlines
from node_agent.redfish.documents import Document, message_ids, messages, parse
from node_agent.redfish.problems import (
    AnswerUnreadable,
    BmcProblem,
    Busy,
    Conflict,
    CredentialsRefused,
    NotSupported,
    OutcomeUnknown,
    Unreachable,
    ValueNotAllowed,
)
from node_agent.redfish.quirks import Quirk
from node_agent.redfish.tls import host_and_port, pinned_context

ROOT: Final = "/redfish/v1/"
BODY_BYTES_MAX: Final = 1 << 20
REDIRECTS_MAX: Final = 3
READS_MAX: Final = 3
RETRY_AFTER_SECONDS_MAX: Final = 300.0
PAGES_MAX: Final = 20
_PATH: Final = re.compile(r"/(?!/)[\x21-\x7e]{0,2000}")
HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]{1,4096}")
"""What the client sends back to a BMC in a header."""
# Nothing was sent when one of these is raised.
_BEFORE_SENDING: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True)
class Answer:
    """One answer: its status, headers and body."""

    path: str
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> JsonObject:
        """The JSON object of the body. Raises AnswerUnreadable."""
        return parse(self.path, self.body)

    def json_or_empty(self) -> JsonObject:
        """The JSON object of the body, or an empty one."""
        try:
            return self.json()
        except AnswerUnreadable:
            return {}

    def reasons(self) -> str:
        """Status and message ids of an error, without any text of the BMC."""
        found = message_ids(messages(self.json_or_empty(), "error", "@Message.ExtendedInfo"))
        return ", ".join((str(self.status), *found))


class Wire:
    """Requests to one BMC, authenticated by `login`. `quirks` are those that were met."""

    def __init__(
        self, access: BmcAccess, deadlines: Deadlines, clock: Clock, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        logging.getLogger("httpcore").setLevel(logging.INFO)  # at DEBUG it logs headers, session tokens among them
        host, port = host_and_port(access.url)
        self.deadlines, self.clock = deadlines, clock
        self.quirks: dict[str, Quirk] = {}
        self._origin = httpx.URL(scheme="https", host=host, port=port)
        self._http = httpx.AsyncClient(
            verify=pinned_context(access.certificate_sha256),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "OData-Version": "4.0"},
            limits=httpx.Limits(max_connections=4, max_keepalive_connections=1, keepalive_expiry=2),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def met(self, quirk: Quirk) -> None:
        """Record that the BMC has this quirk."""
        self.quirks[quirk.name] = quirk

    def path_of(self, link: str | None, what: str) -> str:
        """The path of a link. Raises NotSupported if there is none, AnswerUnreadable if it leads to another origin."""
        if not link:
            raise NotSupported(f"the BMC has no link to {what}")
        path = link.partition("#")[0]
        if not path.startswith("/"):
            try:
                url = httpx.URL(path)
            except httpx.InvalidURL as error:
                raise AnswerUnreadable(f"the link to {what} is not a URL") from error
            if (url.scheme, url.host, url.port or 443) != ("https", self._origin.host, self._origin.port or 443):
                raise AnswerUnreadable(f"the link to {what} leads to another origin")
            path = url.raw_path.decode("ascii")
        if not _PATH.fullmatch(path):
            raise AnswerUnreadable(f"the link to {what} is not a path")
        return path

    async def read(self, path: str, headers: dict[str, str], attempts: int = READS_MAX) -> Answer:
        """GET, repeated after no answer, 503, 429 and 502 to 504; redirects within the origin are followed.

        Returns answers of 2xx, 401, 404 and 410. Raises Unreachable, Busy, CredentialsRefused, AnswerUnreadable.
        """
        for attempt in range(1, attempts + 1):
            try:
                answer = await self._follow(path, headers)
            except (httpx.TransportError, TimeoutError) as error:
                problem: BmcProblem = Unreachable(f"GET {path} had no answer: {type(error).__name__}")
                wait = 0.5 * 2**attempt
            else:
                if answer.status not in (429, 502, 503, 504):
                    return _readable(answer)
                wait = retry_after_seconds(answer)
                problem = Busy(f"GET {path} was answered {answer.status}", wait)
            if attempt < attempts:
                await self.clock.sleep(min(wait, 10))
        raise problem

    async def _follow(self, path: str, headers: dict[str, str]) -> Answer:
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._exchange("GET", path, headers, b"", self.deadlines.read_seconds)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            path = self.path_of(answer.headers.get("Location"), f"where GET {path} redirects")
        raise AnswerUnreadable(f"GET {path} redirects more than {REDIRECTS_MAX} times")

    async def send(
        self, method: str, path: str, headers: dict[str, str], body: JsonObject | None, seconds: float
    ) -> Answer:
        """One command, sent once. Returns any answer but 3xx and 5xx; 503 and 429 raise Busy.

        Raises Unreachable if nothing was sent, else OutcomeUnknown.
        """
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            headers = headers | {"Content-Type": "application/json"}
        try:
            answer = await self._exchange(method, path, headers, content, seconds)
        except _BEFORE_SENDING as error:
            raise Unreachable(f"{method} {path} was not sent: {type(error).__name__}") from error
        except (httpx.TransportError, TimeoutError, AnswerUnreadable) as error:
            raise OutcomeUnknown(
                f"{method} {path} was sent and had no readable answer: {type(error).__name__}"
            ) from error
        if answer.status in (429, 503):
            raise Busy(f"{method} {path} was answered {answer.status}", retry_after_seconds(answer))
        if not 200 <= answer.status < 300 and not 400 <= answer.status < 500 and answer.status != 501:
            raise OutcomeUnknown(f"{method} {path} was answered {answer.reasons()}")
        return answer

    async def _exchange(
        self, method: str, path: str, headers: dict[str, str], content: bytes, seconds: float
    ) -> Answer:
        url = self._origin.copy_with(raw_path=path.encode("ascii"))
        timeout = httpx.Timeout(seconds, connect=self.deadlines.connect_seconds)
        # httpx bounds each read, not their sum: a body of one byte a second would never end.
        async with (
            asyncio.timeout(seconds + self.deadlines.connect_seconds),
            self._http.stream(method, url, headers=headers, content=content, timeout=timeout) as response,
        ):
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise AnswerUnreadable(f"the answer of {path} is compressed, which was not asked for")
            body = await _bounded(path, response.aiter_raw())
            return Answer(path, response.status_code, response.headers, body)


async def _bounded(path: str, chunks: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise AnswerUnreadable(f"the answer of {path} is larger than {BODY_BYTES_MAX} bytes")
    return bytes(body)


def _readable(answer: Answer) -> Answer:
    if answer.status == 403:
        raise CredentialsRefused(f"GET {answer.path} was answered {answer.reasons()}")
    if answer.status >= 500 and answer.status != 501:
        raise Unreachable(f"GET {answer.path} was answered {answer.reasons()}")
    if not 200 <= answer.status < 300 and answer.status not in (401, 404, 405, 410, 501):
        raise AnswerUnreadable(f"GET {answer.path} was answered {answer.reasons()}")
    return answer


def refusal(method: str, answer: Answer) -> BmcProblem:
    """The problem of a command that was answered 4xx or 501: nothing was done."""
    detail = f"{method} {answer.path} was answered {answer.reasons()}"
    if answer.status in (401, 403):
        return CredentialsRefused(detail)
    if answer.status in (404, 405, 410, 501):
        return NotSupported(detail)
    if answer.status in (409, 412, 428):
        return Conflict(detail)
    return ValueNotAllowed(detail)


def retry_after_seconds(answer: Answer) -> float:
    """Retry-After in seconds, 1 to 300; 5 if it is missing or a date."""
    text = answer.headers.get("Retry-After", "")
    return min(max(float(text), 1.0), RETRY_AFTER_SECONDS_MAX) if re.fullmatch(r"[0-9]{1,6}", text) else 5.0


def document_of(answer: Answer) -> Document:
    """The document of a 2xx answer to a GET. Raises NotSupported for another one, AnswerUnreadable for another body."""
    if not 200 <= answer.status < 300:
        raise NotSupported(f"GET {answer.path} was answered {answer.status}")
    etag = answer.headers.get("ETag")
    return Document(answer.path, answer.json(), etag if etag and HEADER_VALUE.fullmatch(etag) else None)
