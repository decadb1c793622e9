"""A scripted control plane: real listeners, real mutual TLS, the wire types of the protocol, no database behind them."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import BaseModel
from uvicorn.protocols.http.h11_impl import H11Protocol

from berth.local.servers import free_port
from node_agent.attestation.wire import (
    Attestation,
    AttestationChallenge,
    AttestedCertificateRequest,
    AttestedEnrolRequest,
    EnrolmentChallengeRequest,
    TpmKeys,
)
from node_agent.key_set import KeySet, key_id, sign_key_set, task_key
from node_agent.protocol import (
    Credentials,
    EnrolRequest,
    Envelope,
    FailureCode,
    HandedOutTask,
    Heartbeat,
    HeartbeatAnswer,
    ProgressReport,
    ResultAnswer,
    ResultReport,
    TaskBody,
    TaskType,
    VerifyingKey,
    WaitAnswer,
    sign_task,
)
from node_agent.wire.networks import SpanAnswer
from tests.node_agent.authority import Authority
from tests.support.waiting import WAIT_SECONDS_MAX, async_wait_for


def public_key_of(csr_pem: str) -> bytes:
    """The public key of a certificate signing request (SPKI, DER)."""
    key = x509.load_pem_x509_csr(csr_pem.encode()).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class _PeerProtocol(H11Protocol):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, "peer": tls.getpeercert() if tls is not None else None}


class ControlPlane:
    """A scripted control plane that records requests. Runs in the event loop of the test."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority.new()
        self.root = Ed25519PrivateKey.generate()
        self.root_keys_file = directory / "root-public.pem"
        root = self.root.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self.root_keys_file.write_bytes(root)
        self.signing_key = Ed25519PrivateKey.generate()
        self.key_set: bytes = self.signed_key_set(1, self.signing_key)
        self.announced_serial: int | None = 1
        self.planted_ca: str | None = None
        self.span: SpanAnswer | None = None
        self.received: list[bytes] = []
        self.key_set_requests = 0
        self.node_id = uuid.uuid4()
        self.epoch = 0
        self.tokens: set[str] = set()
        self.certificate_life = dt.timedelta(hours=1)
        self.certificate_age = dt.timedelta(0)
        self.clock_offset = dt.timedelta(0)
        self.refuse_certificates = False
        self.break_results = 0
        self.silent_results = 0
        self.refused_codes: frozenset[FailureCode] = frozenset()
        self.handed_out: dict[UUID, HandedOutTask] = {}
        self.hide: set[UUID] = set()
        self.insist: set[UUID] = set()
        self.superseded: set[UUID] = set()
        self.results: dict[UUID, list[ResultReport]] = defaultdict(list)
        self.progress: dict[UUID, list[str]] = defaultdict(list)
        self.details: dict[UUID, list[str]] = defaultdict(list)
        self.known: list[UUID] = []
        self.waits = 0
        self.repeated = 0
        self.heartbeats: list[Heartbeat] = []
        self.enrolments: list[EnrolRequest] = []
        self.renewals: list[bytes] = []
        self.attestations: list[tuple[bytes, Attestation | None]] = []
        self.challenge: Callable[[TpmKeys], tuple[int, Any]] = lambda keys: (200, AttestationChallenge())
        self.lost_renewals = 0
        self.peers: list[str] = []
        self.next_fence = 100
        self.changed = asyncio.Condition()
        self.public_port, self.node_port = free_port(), free_port()
        self._files = self.authority.write_server_files(directory)

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.public_port}"

    @property
    def key_id(self) -> str:
        """The id of the key that signs tasks."""
        return key_id(self.signing_key.public_key())

    def signed_key_set(self, serial: int, *keys: Ed25519PrivateKey, root: Ed25519PrivateKey | None = None) -> bytes:
        """A key set with these task keys and the authority's CA."""
        task_keys = [task_key(key.public_key()) for key in keys]
        content = KeySet(serial=serial, task_keys=task_keys, node_cas=[self.authority.pem])
        return sign_key_set(content, root or self.root).model_dump_json().encode()

    def carry(self, serial: int, *keys: Ed25519PrivateKey) -> None:
        """From now on carry and announce a set of this serial with these keys, signed by the root."""
        self.key_set = self.signed_key_set(serial, *keys)
        self.announced_serial = serial

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self.clock_offset

    def new_token(self, pin: str = "-") -> str:
        token = f"enrol2.{pin}.{uuid.uuid4()}"
        self.tokens.add(token)
        return token

    def body(
        self, kind: TaskType, parameters: dict[str, Any], allocation_id: UUID | None = None, **changes: Any
    ) -> TaskBody:
        """A task for this node with a fresh fence, valid for an hour."""
        self.next_fence += 1
        fields: dict[str, Any] = {
            "task_id": uuid.uuid4(),
            "type": kind,
            "node_id": self.node_id,
            "node_epoch": self.epoch,
            "allocation_id": allocation_id,
            "fence": self.next_fence,
            "parameters": parameters,
            "not_before": self.now() - dt.timedelta(seconds=1),
            "expires_at": self.now() + dt.timedelta(hours=1),
            "key_id": self.key_id,
        }
        return TaskBody.model_validate({**fields, **changes})

    async def hand_out(self, body: TaskBody, key: Ed25519PrivateKey | None = None) -> UUID:
        """Queue a signed task; handed out again until the agent says that it knows it or reports it."""
        return await self.hand_out_envelope(body.task_id, sign_task(body, key or self.signing_key))

    async def hand_out_envelope(self, task_id: UUID, envelope: Envelope) -> UUID:
        async with self.changed:
            self.handed_out[task_id] = HandedOutTask(task_id=task_id, envelope=envelope)
            self.changed.notify_all()
        return task_id

    async def result_of(self, task_id: UUID) -> ResultReport:
        """The task's first report, when it is there."""
        await self.until(lambda: bool(self.results[task_id]))
        return self.results[task_id][0]

    async def until(self, condition: Callable[[], bool], seconds_max: float = WAIT_SECONDS_MAX) -> None:
        """Wait for something that a request of the agent brings about."""
        async with asyncio.timeout(seconds_max), self.changed:
            await self.changed.wait_for(condition)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ControlPlane]:
        """Both listeners, up."""
        async with self._listener(self._public_config()), self.node_listener():
            yield self

    @asynccontextmanager
    async def node_listener(self) -> AsyncIterator[None]:
        """The node listener alone."""
        async with self._listener(self._node_config()):
            yield

    @asynccontextmanager
    async def tls_listener(self, authority: Authority, directory: Path) -> AsyncIterator[int]:
        """The public listener with a certificate of this authority for 127.0.0.1; its port."""
        certificate, key, _ = authority.write_server_files(directory)
        config = self._public_config()
        config.port, config.ssl_certfile, config.ssl_keyfile = free_port(), str(certificate), str(key)
        async with self._listener(config):
            yield config.port

    def _public_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self._app, port=self.public_port, log_config=None, lifespan="off", loop="asyncio", interface="asgi3"
        )

    def _node_config(self) -> uvicorn.Config:
        certificate, key, ca = (str(file) for file in self._files)
        return uvicorn.Config(
            self._app, port=self.node_port, log_config=None, lifespan="off", loop="asyncio", interface="asgi3",
            http=_PeerProtocol,
            ssl_certfile=certificate, ssl_keyfile=key, ssl_ca_certs=ca, ssl_cert_reqs=2, timeout_graceful_shutdown=0,
        )  # fmt: skip

    @asynccontextmanager
    async def _listener(self, config: uvicorn.Config) -> AsyncIterator[None]:
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve())
        await async_wait_for(lambda: server.started or serving.done(), "the listener")
        assert not serving.done(), "the scripted control plane cannot listen"
        try:
            yield
        finally:
            server.should_exit = True
            server.force_exit = True
            await serving

    def _credentials(self, csr_pem: str) -> Credentials:
        raw = self.signing_key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        begins = self.now() - self.certificate_age
        return Credentials(
            node_id=self.node_id,
            node_epoch=self.epoch,
            certificate_pem=self.authority.issue_node(csr_pem, self.node_id, begins, self.certificate_life),
            ca_pem=self.planted_ca or self.authority.pem,
            node_api_url=f"https://127.0.0.1:{self.node_port}",
            verifying_keys=[VerifyingKey(key_id=self.key_id, public_key=base64.b64encode(raw).decode())],
            key_set=self._parsed_key_set(),
            server_time=self.now(),
        )

    def _parsed_key_set(self) -> Any:
        try:
            return json.loads(self.key_set)
        except ValueError:
            return None

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        content = b""
        while True:
            message = await receive()
            content += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, answer = await self._route(scope, content)
        if isinstance(answer, BaseModel):
            body = answer.model_dump_json().encode()
        else:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        async with self.changed:
            self.changed.notify_all()
        body = b"" if status == 204 else body
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _route(self, scope: Any, content: bytes) -> tuple[int, Any]:
        path: str = scope["path"]
        if path == "/api/v1/nodes/enroll" and scope["method"] == "GET":
            return 405, {"code": "method_not_allowed", "server_time": self.now().isoformat()}
        if path == "/api/v1/nodes/enroll":
            self.received.append(content)
            return self._enrol(AttestedEnrolRequest.model_validate_json(content))
        if path == "/api/v1/nodes/enroll/challenge":
            return self.challenge(EnrolmentChallengeRequest.model_validate_json(content).tpm)
        peer = scope["state"]["peer"]
        assert peer, "the node listener accepted a client without a certificate"
        self.peers.append(dict(peer["subjectAltName"])["URI"])
        if self.refuse_certificates:
            return 403, {"code": "forbidden"}
        if path == "/node/v1/key-set":
            self.key_set_requests += 1
            return 200, self.key_set
        if path == "/node/v1/tasks/wait":
            return await self._wait(parse_qs(scope["query_string"].decode()))
        if path == "/node/v1/heartbeat":
            self.heartbeats.append(Heartbeat.model_validate_json(content))
            return 200, HeartbeatAnswer(
                server_time=self.now(), node_state="active", key_set_serial=self.announced_serial,
                span=self.span,
            )  # fmt: skip
        if path == "/node/v1/certificate/challenge":
            return self.challenge(TpmKeys.model_validate_json(content))
        if path == "/node/v1/certificate":
            request = AttestedCertificateRequest.model_validate_json(content)
            self.attestations.append((public_key_of(request.csr_pem), request.attestation))
            self.renewals.append(public_key_of(request.csr_pem))
            if len(self.renewals) <= self.lost_renewals:
                return 503, {"code": "overloaded"}
            return 200, self._credentials(request.csr_pem)
        task_id, what = UUID(path.split("/")[-2]), path.split("/")[-1]
        if what == "progress":
            phases = ProgressReport.model_validate_json(content).phases
            self.progress[task_id] += [one.phase for one in phases]
            self.details[task_id] += [one.detail for one in phases]
            return 204, None
        return self._result(task_id, ResultReport.model_validate_json(content))

    def _enrol(self, request: AttestedEnrolRequest) -> tuple[int, Any]:
        if request.token not in self.tokens:
            return 403, {"code": "forbidden", "detail": "the token is unknown or used"}
        self.tokens.remove(request.token)
        self.enrolments.append(request)
        self.attestations.append((public_key_of(request.csr_pem), request.attestation))
        self.epoch += 1
        return 200, self._credentials(request.csr_pem)

    async def _wait(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        self.waits += 1
        self.known = [UUID(known) for known in query.get("known", [])]
        known = set(self.known)

        def open_tasks() -> list[HandedOutTask]:
            return [
                task
                for task_id, task in self.handed_out.items()
                if task_id in self.insist
                or (task_id not in known and not self.results[task_id] and task_id not in self.hide)
            ]

        self.repeated += len(self.insist)
        try:
            async with asyncio.timeout(float(query["timeout_seconds"][0])), self.changed:
                self.changed.notify_all()
                await self.changed.wait_for(lambda: bool(open_tasks()))
        except TimeoutError:
            pass
        return 200, WaitAnswer(tasks=open_tasks(), server_time=self.now())

    def _result(self, task_id: UUID, report: ResultReport) -> tuple[int, Any]:
        if self.break_results > 0:
            self.break_results -= 1
            return 503, {"code": "overloaded"}
        if report.failure is not None and report.failure.code in self.refused_codes:
            return 422, {"code": "invalid"}
        self.results[task_id].append(report)
        if self.silent_results > 0:
            # Taken, but the answer is lost on the way.
            self.silent_results -= 1
            return 502, {}
        if task_id in self.superseded:
            return 200, ResultAnswer(applied=False, reason="superseded")
        first = len(self.results[task_id]) == 1
        return 200, ResultAnswer(applied=first, reason=None if first else "already_applied")
