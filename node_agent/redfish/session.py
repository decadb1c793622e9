"""Authenticated requests to one BMC: a session where there is a session service, basic authentication elsewhere.

A session that the BMC ended (401) is renewed once for each request, and deleted by `close`.
"""

from __future__ import annotations

import base64
from typing import Final

from berth.process.json_objects import JsonObject
from node_agent.redfish.documents import Document
from node_agent.redfish.problems import (
    AnswerUnreadable,
    BmcProblem,
    Conflict,
    CredentialsRefused,
    OutcomeUnknown,
    Unreachable,
)
from node_agent.redfish.quirks import SESSION_WITHOUT_LOCATION, SESSIONS_LINK_MISSING, WEAK_ETAG, strong_etag
from node_agent.redfish.wire import HEADER_VALUE, PAGES_MAX, READS_MAX, ROOT, Answer, Wire, document_of, refusal

ETAG_READS_MAX: Final = 2


class Session:
    """Reads and commands as one account. The password is in no repr."""

    def __init__(self, wire: Wire, username: str, password: str) -> None:
        self.wire = wire
        self.username = username
        self._password = password
        self._headers: dict[str, str] | None = None
        self._session_path: str | None = None
        self._sessions_path: str | None = None
        self._root: Document | None = None

    async def root(self) -> Document:
        """The service root, which needs no authentication."""
        if self._root is None:
            self._root = document_of(await self.wire.read(ROOT, {}))
        return self._root

    async def get(self, link: str | None, what: str, attempts: int = READS_MAX) -> Document:
        """The resource of a link. Raises NotSupported if there is no such link or resource."""
        return document_of(await self.answer_of(self.wire.path_of(link, what), attempts))

    async def answer_of(self, path: str, attempts: int = READS_MAX) -> Answer:
        """The answer to a GET: 2xx, 404, 405, 410 or 501."""
        answer = await self.wire.read(path, await self._authentication(), attempts)
        if answer.status == 401:
            answer = await self.wire.read(path, await self._renewed(), attempts)
        if answer.status == 401:
            raise CredentialsRefused(f"GET {path} was answered 401, with a new session too")
        return answer

    async def members(self, link: str | None, what: str, limit: int) -> tuple[list[Document], bool]:
        """At most `limit` members of a collection, and whether there are more. Members inside it are not read again."""
        found: list[Document] = []
        path = self.wire.path_of(link, what)
        for _ in range(PAGES_MAX):
            page = await self.get(path, what)
            for member in page.parts("Members"):
                if len(found) == limit:
                    return found, True
                own = self.wire.path_of(member.text("@odata.id"), f"a member of {what}")
                found.append(Document(own, member.data) if len(member.data) > 1 else await self.get(own, what))
            following = page.text("Members@odata.nextLink") or page.text("@odata.nextLink")
            if not following:
                return found, False
            path = self.wire.path_of(following, f"the next page of {what}")
        return found, True

    async def post(self, path: str, body: JsonObject, seconds: float | None = None) -> Answer:
        """POST, sent once. Raises the problem of a 4xx answer; see `Wire.send` for no answer."""
        return self.accepted("POST", await self.send("POST", path, body, seconds))

    async def patch(self, path: str, body: JsonObject) -> Answer:
        """PATCH with If-Match where the resource has an ETag; after 412 it is read and sent once more. Raises Conflict."""
        etag = (await self.get(path, "the resource to change")).etag
        answer = await self.send("PATCH", path, body, None, etag)
        if answer.status == 412:
            newer = (await self.get(path, "the resource to change")).etag
            if newer == etag:
                if (newer := strong_etag(etag)) is None:
                    raise Conflict(f"PATCH {path} was answered 412 with the ETag that the BMC still reports")
                self.wire.met(WEAK_ETAG)
            answer = await self.send("PATCH", path, body, None, newer)
        return self.accepted("PATCH", answer)

    async def send(
        self, method: str, path: str, body: JsonObject | None, seconds: float | None = None, etag: str | None = None
    ) -> Answer:
        """One command; after 401, which refuses it, once more with a new session. Returns 2xx, 4xx or 501."""
        limit = seconds if seconds is not None else self.wire.deadlines.command_seconds
        match = {"If-Match": etag} if etag else {}
        answer = await self.wire.send(method, path, await self._authentication() | match, body, limit)
        if answer.status == 401:
            answer = await self.wire.send(method, path, await self._renewed() | match, body, limit)
        return answer

    @staticmethod
    def accepted(method: str, answer: Answer) -> Answer:
        """The same answer if it is 2xx. Raises the problem of another one."""
        if 200 <= answer.status < 300:
            return answer
        raise refusal(method, answer)

    async def works(self, password: str) -> bool:
        """Whether the BMC accepts this password: one login. Raises Unreachable or Busy if it does not answer."""
        trial = Session(self.wire, self.username, password)
        trial._root = await self.root()
        try:
            await trial._authentication()
            if trial._session_path is None and "Authorization" in (trial._headers or {}):
                accounts = trial.wire.path_of((await self.root()).link("Systems"), "systems")
                return (await self.wire.read(accounts, trial._headers or {})).status != 401
        except CredentialsRefused:
            return False
        finally:
            await trial.end()
        return True

    async def use(self, password: str) -> None:
        """Go on with this password; the session of the earlier one is deleted."""
        await self.end()
        self._password = password

    async def end(self) -> None:
        """Delete the session, if there is one. Raises nothing that a BMC may cause."""
        headers, path = self._headers, self._session_path
        self._headers = self._session_path = None
        if path is not None and headers is not None:
            try:
                await self.wire.send("DELETE", path, headers, None, self.wire.deadlines.connect_seconds)
            except BmcProblem:
                pass  # the BMC ends it by its timeout

    async def _renewed(self) -> dict[str, str]:
        if "Authorization" in (self._headers or {}):
            raise CredentialsRefused("the BMC answered 401 to the account's password")
        self._headers = self._session_path = None
        return await self._authentication()

    async def _authentication(self) -> dict[str, str]:
        if self._headers is None:
            path = await self._find_sessions()
            self._headers = self._basic() if path is None else await self._login(path)
        return self._headers

    def _basic(self) -> dict[str, str]:
        pair = base64.b64encode(f"{self.username}:{self._password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    async def _find_sessions(self) -> str | None:
        root = await self.root()
        link = root.link("Links", "Sessions")
        if link is None and (service := root.link("SessionService")) is not None:
            self.wire.met(SESSIONS_LINK_MISSING)
            answer = await self.wire.read(self.wire.path_of(service, "the session service"), self._basic())
            if answer.status == 401:
                raise CredentialsRefused("the BMC answered 401 to the account's password")
            link = document_of(answer).link("Sessions") if answer.status < 300 else None
        return None if link is None else self.wire.path_of(link, "sessions")

    async def _login(self, path: str) -> dict[str, str]:
        body = {"UserName": self.username, "Password": self._password}
        try:
            answer = await self.wire.send("POST", path, {}, body, self.wire.deadlines.read_seconds)
        except OutcomeUnknown as unknown:  # a session that may be left over changes nothing of the machine
            raise Unreachable(f"the login had no answer: {unknown.detail}") from unknown
        if answer.status in (404, 405, 501):
            return self._basic()
        if answer.status in (400, 401, 403):
            raise CredentialsRefused(f"the login was answered {answer.reasons()}")
        self.accepted("POST", answer)
        token = answer.headers.get("X-Auth-Token")
        if token is None or not HEADER_VALUE.fullmatch(token):
            raise AnswerUnreadable("the answer to the login has no readable X-Auth-Token")
        location = answer.headers.get("Location")
        if location is None:
            self.wire.met(SESSION_WITHOUT_LOCATION)
            location = Document(path, answer.json_or_empty()).text("@odata.id") or None
        self._session_path = None if location is None else self.wire.path_of(location, "the session")
        return {"X-Auth-Token": token}
