"""The Redfish service of the stub: one request in, one reply out; faults of its script in between."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from tests.support.bmc.actions import ACTIONS, Refused
from tests.support.bmc.faults import WITHOUT_EFFECT, Fault, Rule, Script
from tests.support.bmc.machine import SYSTEM, StubMachine
from tests.support.bmc.resources import ACCOUNTS, ROOT, SESSIONS, TASKS, Resource, tree

METADATA = b"""<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
  <edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/ServiceRoot_v1.xml">
    <edmx:Include Namespace="ServiceRoot"/><edmx:Include Namespace="ServiceRoot.v1_15_0"/>
  </edmx:Reference>
  <edmx:DataServices><Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
    <EntityContainer Name="Service" Extends="ServiceRoot.v1_15_0.ServiceContainer"/>
  </Schema></edmx:DataServices>
</edmx:Edmx>"""


PATCHABLE = ("Boot", "Password", "Image")


class Manner(Enum):
    """How a reply goes over the wire."""

    WHOLE = auto()
    SILENT = auto()  # no byte, the connection stays open
    BROKEN = auto()  # the connection is closed without a byte
    ENDLESS = auto()
    SLOW = auto()


@dataclass
class Reply:
    """A reply of the service."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    manner: Manner = Manner.WHOLE


@dataclass
class Request:
    """A request to the service; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        try:
            data = json.loads(self.body)
        except ValueError as error:
            raise Refused(400, "MalformedJSON") from error
        if not isinstance(data, dict):
            raise Refused(400, "MalformedJSON")
        return data


def nothing() -> None:
    """The effect of a request that has none."""


class StubService:
    """Serves one machine. `requests` lists what arrived, `accepted` the commands that passed authentication."""

    def __init__(self, machine: StubMachine) -> None:
        self.machine = machine
        self.script = Script()
        self.requests: list[str] = []
        self.accepted: list[tuple[str, bytes]] = []

    def handle(self, request: Request) -> Reply:
        """Answer one request, or fail as the script says."""
        self.machine.advance()
        line = f"{request.method} {request.path}"
        self.requests.append(line)
        if self.machine.clock.now() < self.machine.silent_until:
            return Reply(0, manner=Manner.BROKEN)
        rule = self.script.next_for(line)
        if rule is not None and (early := self._before(rule)) is not None:
            return early
        if rule is not None and rule.fault is Fault.CHANGED:
            self.machine.changed(SYSTEM)
        try:
            reply, effect = self._answer(request)
        except Refused as refused:
            reply, effect = refused_reply(refused), nothing
        return self._after(rule, reply, effect)

    @staticmethod
    def _before(rule: Rule) -> Reply | None:
        """The reply of a fault that keeps the request from being looked at."""
        match rule.fault:
            case Fault.BUSY:
                return error_reply(503, "ServiceTemporarilyUnavailable", {"Retry-After": "1"})
            case Fault.ERROR:
                return error_reply(500, "InternalError")
            case Fault.UNAUTHORISED:
                return error_reply(401, "NoValidSession")
            case Fault.NO_ANSWER:
                return Reply(0, manner=Manner.SILENT)
            case Fault.BROKEN_BEFORE:
                return Reply(0, manner=Manner.BROKEN)
            case Fault.REDIRECT:
                return Reply(307, headers={"Location": rule.body.decode()})
        return None

    def _after(self, rule: Rule | None, reply: Reply, effect: Callable[[], None]) -> Reply:
        if rule is None:
            effect()
            return reply
        if rule.fault in (Fault.QUEUED, Fault.DELAYED):
            self.machine.later(rule.seconds, effect)
        elif rule.fault not in WITHOUT_EFFECT:
            effect()
        match rule.fault:
            case Fault.ERROR_WITH_EFFECT:
                return error_reply(500, "InternalError")
            case Fault.QUEUED | Fault.NO_ANSWER_WITH_EFFECT:
                return Reply(0, manner=Manner.SILENT)
            case Fault.BROKEN_AFTER:
                return Reply(0, manner=Manner.BROKEN)
            case Fault.ENDLESS:
                return Reply(200, headers=reply.headers, manner=Manner.ENDLESS)
            case Fault.SLOW:
                return Reply(200, headers=reply.headers, manner=Manner.SLOW)
            case Fault.BODY:
                return Reply(200, rule.body, reply.headers)
        return reply

    def _answer(self, request: Request) -> tuple[Reply, Callable[[], None]]:
        path, _, query = request.path.partition("?")
        if request.headers.get("odata-version", "4.0") != "4.0":
            raise Refused(412, "HeaderInvalid")
        if query.startswith("$"):
            raise Refused(501, "QueryNotSupported")
        if path == "/redfish":
            return json_reply({"v1": ROOT}), nothing
        if path in ("/redfish/v1/$metadata",):
            return Reply(200, METADATA, {"Content-Type": "application/xml"}), nothing
        if path == "/redfish/v1/odata":
            return json_reply({"@odata.context": "/redfish/v1/$metadata", "value": []}), nothing
        path = ROOT if path == ROOT.rstrip("/") else path.removesuffix("/Members")
        if request.method == "POST" and path == SESSIONS and self.machine.options.sessions:
            return self._login(request)
        if not (path == ROOT and request.method in ("GET", "HEAD")):
            self._authenticate(request)
        if request.method not in ("GET", "HEAD"):
            self.accepted.append((f"{request.method} {path}", request.body))
        return self._dispatch(request, path)

    def _dispatch(self, request: Request, path: str) -> tuple[Reply, Callable[[], None]]:
        if path.startswith("/taskmon/"):
            return self._monitor(path), nothing
        resources = tree(self.machine)
        action = ACTIONS.get(path.rpartition("/")[2])
        if action is not None and request.method == "POST":
            return self._act(*action(self.machine, path, request.json()))
        if path not in resources:
            raise Refused(404, "ResourceMissingAtURI")
        if request.method in ("GET", "HEAD"):
            return self._resource(resources[path]), nothing
        if request.method == "PATCH":
            return self._patch(request, path, resources[path])
        if request.method == "DELETE" and path.startswith(f"{SESSIONS}/"):
            token = next(token for token in self.machine.sessions if path.endswith(token[:8]))
            return Reply(204), lambda: self.machine.end_session(token)
        raise Refused(405, "OperationNotAllowed", {"Allow": "GET, HEAD"})

    def etag(self, path: str) -> str | None:
        """The resource's ETag; weak, as many BMCs send it."""
        kept = (
            "media" if "VirtualMedia" in path else "accounts" if path.startswith(ACCOUNTS) else path.removesuffix("/SD")
        )
        return f'W/"{self.machine.versions.get(kept, 1)}"' if self.machine.options.etags else None

    def _resource(self, data: Resource) -> Reply:
        allow = "GET, HEAD, PATCH" if any(name in data for name in PATCHABLE) else "GET, HEAD"
        schema = data["@odata.type"].partition(".")[0].removeprefix("#")
        headers = {"Allow": allow, "Link": f"<http://redfish.dmtf.org/schemas/v1/{schema}.json>; rel=describedby"}
        etag = self.etag(data["@odata.id"])
        return json_reply(data, headers=headers | ({"ETag": etag} if etag else {}))

    def _patch(self, request: Request, path: str, current: Resource) -> tuple[Reply, Callable[[], None]]:
        name = next((name for name in PATCHABLE if name in current), None)
        if name is None or path.startswith(SESSIONS):
            raise Refused(405, "OperationNotAllowed", {"Allow": "GET, HEAD"})
        etag, given = self.etag(path), request.headers.get("if-match")
        accepted = etag[2:] if etag and self.machine.options.weak_etags_refused else etag
        if etag is not None and given != accepted:
            raise Refused(412 if given else 428, "PreconditionFailed")
        body, machine = request.json(), self.machine
        if name not in body:
            raise Refused(400, "PropertyUnknown")
        if name == "Boot":
            boot = body["Boot"]
            if (
                boot.get("BootSourceOverrideTarget")
                not in current["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"]
            ):
                raise Refused(400, "PropertyValueNotInList")
            target, enabled = boot["BootSourceOverrideTarget"], boot["BootSourceOverrideEnabled"]
            return self._act("boot", lambda: machine.set_override(target, enabled))
        if name == "Password":
            user, password = current["UserName"], body["Password"]
            return self._act("password", lambda: machine.set_password(user, password))
        return self._act("media", lambda: machine.set_image(body["Image"]))

    def _act(self, name: str, effect: Callable[[], None]) -> tuple[Reply, Callable[[], None]]:
        """204 and the effect, or 202 with a task for what is slow."""
        if not self.machine.options.tasks or name in ("reset", "bmc"):
            return Reply(204), effect
        number, seconds = str(len(self.machine.tasks) + 1), self.machine.options.task_seconds
        self.machine.tasks[number] = self.machine.clock.now() + seconds
        if self.machine.options.task_state == "Completed":
            return self._started(number), lambda: self.machine.later(seconds, effect)
        return self._started(number), nothing

    @staticmethod
    def _started(number: str) -> Reply:
        return json_reply({"@odata.id": f"{TASKS}/{number}", "Id": number}, 202, {"Location": f"/taskmon/{number}"})

    def _monitor(self, path: str) -> Reply:
        number = path.rpartition("/")[2]
        if number not in self.machine.tasks:
            raise Refused(404, "ResourceMissingAtURI")
        if self.machine.clock.now() >= self.machine.tasks[number]:
            return json_reply(tree(self.machine)[f"{TASKS}/{number}"])
        partial = (
            {"PercentComplete": 10} if self.machine.options.partial_tasks else tree(self.machine)[f"{TASKS}/{number}"]
        )
        return json_reply(partial, 202)

    def _authenticate(self, request: Request) -> None:
        token, basic = request.headers.get("x-auth-token"), request.headers.get("authorization", "")
        if token is not None:
            if token in self.machine.sessions:
                return
        elif basic.startswith("Basic "):
            try:
                name, _, password = base64.b64decode(basic[6:]).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                name = password = ""
            if self.machine.login(name, password):
                return
        raise Refused(401, "NoValidSession", {"WWW-Authenticate": 'Basic realm="Redfish"'})

    def _login(self, request: Request) -> tuple[Reply, Callable[[], None]]:
        body = request.json()
        if not self.machine.login(str(body.get("UserName")), str(body.get("Password"))):
            raise Refused(401, "ResourceAtUriUnauthorized")
        token = secrets.token_hex(16)
        self.machine.sessions[token] = str(body["UserName"])
        path = f"{SESSIONS}/{token[:8]}"
        headers = {"X-Auth-Token": token} | ({"Location": path} if self.machine.options.session_location else {})
        return json_reply(tree(self.machine)[path], 201, headers), nothing


def json_reply(data: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    return Reply(
        status, json.dumps(data).encode(), {"Content-Type": "application/json;charset=utf-8"} | (headers or {})
    )


def refused_reply(refused: Refused) -> Reply:
    if refused.body is not None:
        return json_reply(refused.body, refused.status, refused.headers)
    return error_reply(refused.status, refused.message, refused.headers)


def error_reply(status: int, message: str, headers: dict[str, str] | None = None) -> Reply:
    info = {
        "@odata.type": "#Message.v1_1_2.Message",
        "MessageId": f"Base.1.16.{message}",
        "Message": message,
        "Severity": "Warning",
    }
    error = {"code": f"Base.1.16.{message}", "message": message, "@Message.ExtendedInfo": [info]}
    return json_reply({"error": error}, status, headers)
