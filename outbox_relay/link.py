"""One connection to NATS: publishes batches, returns their outcomes, reads the stream's last sequence.

The connection is never reused after a loss: every call on it fails at once and the caller makes a new one, so that no
half-sent batch survives. Batches are written as protocol bytes, as the client's `publish` does; one `publish` call per
message would cost four times the CPU time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import StreamInfo
from nats.js.errors import BadRequestError, NotFoundError

from berth.process.nats_connections import nats_options
from outbox_relay.crash_points import CrashPoint, reach
from outbox_relay.messages import Event, Fence, Subjects, frames
from outbox_relay.problems import ServerUnavailable, StoresNothing, first_line
from outbox_relay.settings import Settings
from outbox_relay.stream import wanted_configuration

LOST = (NatsError, OSError, TimeoutError)
CONNECT_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 1.0

# https://github.com/nats-io/nats-server/blob/main/server/errors.json
WRONG_LAST_SEQUENCE = {10071, 10164}
BUSY = {10158, 10210}  # the same id is just being stored; too many batches are open
DUPLICATE_IN_BATCH = 10201
STREAM_EXISTS_OTHERWISE = 10058


class Outcome(Enum):
    """The outcome of a publish."""

    STORED = auto()
    SOMEONE_ELSE = auto()  # the stream did not end where we thought
    BUSY = auto()  # the same once more, in a moment
    IMPOSSIBLE = auto()  # something in it can never be stored


@dataclass(frozen=True)
class PublishResult:
    """NATS's answer to a publish; `reason` is a stable word when it was not stored."""

    outcome: Outcome
    reason: str = ""


class NatsLink:
    """One connection. Its methods raise `ServerUnavailable` when it is lost, times out or answers out of order."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._subjects = Subjects()
        self._inbox = client.new_inbox()
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._batches = 0
        self._jetstream = client.jetstream(timeout=settings.relay_publish_timeout_seconds)

    @classmethod
    @asynccontextmanager
    async def connected(cls, settings: Settings) -> AsyncIterator[NatsLink]:
        """A link for the length of the context."""
        lost = asyncio.Event()
        client, reason = Client(), "no answer"

        async def on_lost() -> None:
            lost.set()

        async def on_error(error: Exception) -> None:
            # While connecting this is the only place where the reason shows; later, calls fail by themselves.
            nonlocal reason
            reason = first_line(error)

        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await client.connect(
                    **nats_options(settings.nats_url, "berth-relay", settings.nats_ca_file, inbox="relay"),
                    allow_reconnect=False,
                    connect_timeout=5,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    error_cb=on_error,
                    disconnected_cb=on_lost,
                    closed_cb=on_lost,
                )
        except LOST as error:
            raise ServerUnavailable("nats", reason) from error
        link = cls(client, settings)
        watcher = asyncio.create_task(link._fail_when(lost))
        try:
            await link._listen()
            yield link
        finally:
            watcher.cancel()
            with suppress(*LOST):
                await asyncio.wait_for(client.close(), CLOSE_SECONDS_MAX)

    @property
    def message_bytes_max(self) -> int:
        """The largest message, headers included, that the server takes."""
        return self._client.max_payload

    async def stream_end(self) -> int | None:
        """The stream's last sequence; None if there is no stream."""
        info = await self.stream()
        return None if info is None else info.state.last_seq

    async def stream(self) -> StreamInfo | None:
        """The stream's configuration and state; None if there is no stream."""
        try:
            return await self._jetstream.stream_info(self._settings.log_stream_name)
        except NotFoundError:
            return None
        except LOST as error:
            raise ServerUnavailable("nats", first_line(error)) from error

    async def make_stream(self, first_version: int) -> None:
        """Make the stream so that its first message is `first_version`; no error if another relay just made it."""
        try:
            await self._jetstream.add_stream(wanted_configuration(self._settings, first_version))
        except BadRequestError as error:
            if error.err_code != STREAM_EXISTS_OTHERWISE:
                raise ServerUnavailable("nats", first_line(error)) from error
        except LOST as error:
            raise ServerUnavailable("nats", first_line(error)) from error

    async def delete_stream(self) -> None:
        """Delete the stream with all it holds; no error if there is none."""
        try:
            await self._jetstream.delete_stream(self._settings.log_stream_name)
        except NotFoundError:
            return
        except LOST as error:
            raise ServerUnavailable("nats", first_line(error)) from error

    async def event_id_at(self, version: int) -> str | None:
        """The id of the event that the stream holds at `version`, a stub's too; None if it holds nothing there."""
        try:
            message = await self._jetstream.get_msg(self._settings.log_stream_name, version)
        except NotFoundError:
            return None
        except LOST as error:
            raise ServerUnavailable("nats", first_line(error)) from error
        return ((message.headers or {}).get("Nats-Msg-Id") or "").removesuffix(f"-stub-{version}")

    async def publish(self, events: Sequence[Event], last_version: int) -> PublishResult:
        """Store all of `events` behind `last_version`, or none.

        When it raises, they may have been stored or not, or, if NATS was killed, some of the first of them. Raises
        `StoresNothing` if this connection is answered and the publish is not.
        """
        self._batches += 1
        reply = f"{self._inbox}.{self._batches}"
        answer = self._waiting[reply] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._settings.relay_publish_timeout_seconds):
                reach(CrashPoint.PUBLISHING_BEFORE_SEND)
                await self._write(
                    frames(events, f"{self._inbox[-6:]}{self._batches}", Fence(last_version, reply), self._subjects)
                )
                reach(CrashPoint.PUBLISHING_AFTER_SEND)
                message = await answer
        except TimeoutError as error:
            await self._require_silence()
            raise ServerUnavailable("nats", "no answer to a publish, nor to anything else") from error
        except LOST as error:
            raise ServerUnavailable("nats", f"no answer to a publish ({first_line(error)})") from error
        finally:
            self._waiting.pop(reply, None)
        return _read(message, last_version + len(events))

    async def _require_silence(self) -> None:
        """Return if NATS does not answer either what needs no disk. Raises `StoresNothing` if it does."""
        try:
            await self.stream()
        except ServerUnavailable:
            return
        seconds = self._settings.relay_publish_timeout_seconds
        raise StoresNothing(
            "nats",
            f"it answers, and has not stored a publish within {seconds:g} s: its disk is full, was full, or is very slow;"
            " make room and restart NATS, which stores nothing more before (its /healthz says which file)",
        )

    def require_connected(self) -> None:
        """Raise `ServerUnavailable` if the connection is known to be lost; asks nothing."""
        if not self._client.is_connected:
            raise ServerUnavailable("nats", "the connection was lost")

    async def _write(self, commands: bytes) -> None:
        self.require_connected()
        await self._client._send_command(commands)
        await self._client._flush_pending()

    async def _listen(self) -> None:
        async def on_answer(message: Msg) -> None:
            waiting = self._waiting.get(message.subject)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

        try:
            await self._client.subscribe(f"{self._inbox}.*", cb=on_answer)
        except LOST as error:
            raise ServerUnavailable("nats", first_line(error)) from error

    async def _fail_when(self, lost: asyncio.Event) -> None:
        await lost.wait()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the connection was lost"))


def _read(message: Msg, last_version: int) -> PublishResult:
    """What an answer to a publish says, if the stream was to end at `last_version` after it."""
    if not message.data:
        status = (message.headers or {}).get("Status", "empty")
        raise ServerUnavailable("nats", f"no stream accepted the publish (status {status}); does the stream exist?")
    answer = json.loads(message.data)
    error = answer.get("error")
    if error is None:
        if answer.get("duplicate"):
            return PublishResult(Outcome.IMPOSSIBLE, "duplicate")
        if answer.get("seq") != last_version:
            raise ServerUnavailable("nats", f"stored at {answer.get('seq')}, expected {last_version}")
        return PublishResult(Outcome.STORED)
    code, number = error.get("code", 0), error.get("err_code", 0)
    if number in WRONG_LAST_SEQUENCE:
        return PublishResult(Outcome.SOMEONE_ELSE, "wrong_last_sequence")
    if number in BUSY:
        return PublishResult(Outcome.BUSY, f"nats_{number}")
    if 400 <= code < 500 and code != 429:
        return PublishResult(Outcome.IMPOSSIBLE, "duplicate" if number == DUPLICATE_IN_BATCH else f"nats_{number}")
    raise ServerUnavailable("nats", f"{error.get('description', 'refused')} ({number})")
