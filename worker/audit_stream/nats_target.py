"""JetStream as a target: one stream with one subject; NATS acknowledges a batch when it is stored.

A batch is stored whole or not at all. A repeated batch, some of whose ids NATS knows, is refused whole; its messages are then
published one by one, and NATS drops those that it has (TRAPS of NATS: error 10201).
"""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError

from berth.process.json_objects import JsonObject
from berth.process.nats_connections import nats_options
from orchestrator.audit.list_store import Entry
from worker.audit_stream.messages import document_of, message_id
from worker.audit_stream.targets import TargetUnavailable

LOST: Final = (NatsError, OSError, TimeoutError)
CONTENT_TYPE: Final = "application/json"
HEADER_BYTES_MAX: Final = 1_024
"""Room in a message for its headers and an inbox."""
BATCH_MAX: Final = 500
"""Messages of an atomic batch; NATS allows 1,000."""
CLOSE_SECONDS_MAX: Final = 1.0
DUPLICATE_WINDOW_SECONDS: Final = 7_200.0
DUPLICATE_IN_BATCH: Final = 10201


@dataclass(frozen=True, slots=True)
class NatsTarget:
    """The stream, and how it is made if there is none. Durations are seconds."""

    url: str
    ca_file: Path | None
    stream: str
    subject: str
    age_seconds_max: float
    replicas: int
    timeout_seconds: float
    name: str = "nats"
    settle_seconds: float = 0.0

    async def connect(self) -> NatsConnection:
        """A connection to a stream that can hold the audit. Raises `TargetUnavailable`."""
        client, reasons = Client(), ["no answer"]

        async def on_error(error: Exception) -> None:
            # While connecting this is the only place where the reason shows.
            reasons.append(_first_line(error))

        try:
            async with asyncio.timeout(self.timeout_seconds):
                await client.connect(
                    **nats_options(self.url, "berth-audit-stream", self.ca_file, inbox="audit"),
                    allow_reconnect=False,
                    connect_timeout=math.ceil(self.timeout_seconds),
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    error_cb=on_error,
                )
        except LOST as error:
            raise TargetUnavailable("connect", f"NATS cannot be reached: {reasons[-1]}") from error
        connection = NatsConnection(self, client)
        try:
            connection.atomic = _is_atomic(await self._stream(client), self)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _stream(self, client: Client) -> StreamInfo:
        """The stream, made if it is missing."""
        jetstream = client.jetstream(timeout=self.timeout_seconds)
        try:
            with suppress(NotFoundError):
                return await jetstream.stream_info(self.stream)
            return await jetstream.add_stream(self._configuration())
        except LOST as error:
            raise TargetUnavailable(
                "stream", f"the stream {self.stream} cannot be used: {_first_line(error)}"
            ) from error

    def _configuration(self) -> StreamConfig:
        age = self.age_seconds_max
        return StreamConfig(
            name=self.stream,
            description="The audit of Berth, as OCSF objects in the order of its chain",
            subjects=[self.subject],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=age,
            num_replicas=self.replicas,
            # NATS refuses a window longer than the messages live.
            duplicate_window=min(DUPLICATE_WINDOW_SECONDS, age) if age else DUPLICATE_WINDOW_SECONDS,
            allow_atomic=True,
            allow_direct=True,
            # Append-only for operators as well; age removes messages all the same.
            deny_delete=True,
            deny_purge=True,
        )


class NatsConnection:
    """One connection; `atomic`: whether the stream takes batches."""

    atomic = False

    def __init__(self, target: NatsTarget, client: Client) -> None:
        self._target = target
        self._client = client

    async def send(self, rows: Sequence[Entry]) -> None:
        """Store all rows. Raises `TargetUnavailable`; the rows may have been stored or not."""
        try:
            for start in range(0, len(rows), BATCH_MAX):
                await self._send_batch(rows[start : start + BATCH_MAX])
        except LOST as error:
            raise TargetUnavailable("publish", f"NATS did not store the rows: {_first_line(error)}") from error

    async def require_open(self) -> None:
        """Raise `TargetUnavailable` if the connection was lost."""
        if not self._client.is_connected:
            raise TargetUnavailable("lost", "the connection to NATS was lost")

    async def close(self) -> None:
        """End the connection."""
        with suppress(*LOST):
            await asyncio.wait_for(self._client.close(), CLOSE_SECONDS_MAX)

    async def _send_batch(self, rows: Sequence[Entry]) -> None:
        if self.atomic and len(rows) > 1:
            error = await self._publish_batch(rows)
            if error is None:
                return
            if error.get("err_code") != DUPLICATE_IN_BATCH:
                raise _refused(error)
        for row in rows:
            error = await self._ask(row, {})
            if error is not None:
                raise _refused(error)

    async def _publish_batch(self, rows: Sequence[Entry]) -> JsonObject | None:
        """Publish one atomic batch (ADR-50); return NATS's error, None if it is stored."""
        batch = uuid.uuid4().hex
        for number, row in enumerate(rows[:-1], 1):
            headers = {**_headers(row), "Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await self._client.publish(self._target.subject, self._document(row), headers=headers)
        last = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(rows)), "Nats-Batch-Commit": "1"}
        return await self._ask(rows[-1], last)

    async def _ask(self, row: Entry, headers: dict[str, str]) -> JsonObject | None:
        """Publish with an acknowledgement; return NATS's error, None if the message is stored."""
        answer = await self._client.request(
            self._target.subject,
            self._document(row),
            timeout=self._target.timeout_seconds,
            headers={**_headers(row), **headers},
        )
        found = json.loads(answer.data or b"{}")
        if "stream" not in found and "error" not in found:
            raise TargetUnavailable("publish", "the answer to a publish is none of JetStream's")
        error: JsonObject | None = found.get("error")
        return error

    def _document(self, row: Entry) -> bytes:
        return document_of(row, self._client.max_payload - HEADER_BYTES_MAX)


def _is_atomic(found: StreamInfo, target: NatsTarget) -> bool:
    """Whether the stream takes batches. Raises `TargetUnavailable` if it does not keep every row that it acknowledges."""
    config = found.config
    dangers = [
        what
        for what, danger in (
            ("does not acknowledge (no_ack)", bool(config.no_ack)),
            ("is sealed", bool(config.sealed)),
            (f"does not have the subject {target.subject}", target.subject not in (config.subjects or [])),
            ("keeps messages in memory", config.storage == StorageType.MEMORY),
        )
        if danger
    ]
    if dangers:
        raise TargetUnavailable("stream", f"the stream {target.stream} cannot hold the audit: it {', '.join(dangers)}")
    return bool(config.allow_atomic)


def _headers(row: Entry) -> dict[str, str]:
    return {"Nats-Msg-Id": message_id(row), "content-type": CONTENT_TYPE, "Berth-Audit-Sequence": str(row.sequence)}


def _refused(error: JsonObject) -> TargetUnavailable:
    text = f"{error.get('description', 'no reason')} ({error.get('err_code', 0)})"
    return TargetUnavailable("refused", f"NATS refuses the rows: {text}")


def _first_line(error: BaseException) -> str:
    if isinstance(error, APIError):
        return str(error.description or error.code)
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
