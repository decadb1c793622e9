"""A session of a guest's serial console: what `console.attach` is given, and the frames between agent and API process.

The agent connects to the process that the signed task names, over TLS with its node certificate. It sends `HELLO` with the
session's id and the hash of the session's secret, which it knows from the task alone. The process answers `WELCOME` with the
secret, which it kept in memory alone: the agent compares its hash. Then `DATA` flows both ways until one side sends `END`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import Field

from node_agent.wire.fields import INTEGER_MAX, STORABLE, Exact, Instant, Truth, Whole, Wire

CONSOLE_FEATURE: Final = "console"
"""What an agent that knows the task names in its heartbeats."""
FRAME_BYTES_MAX: Final = 16 * 1024
HEADER_BYTES: Final = 5
LOG_BYTES_MAX: Final = 1024 * 1024

HELLO, WELCOME, DATA, DROPPED, END = b"H", b"W", b"D", b"L", b"E"
KINDS: Final = frozenset({HELLO, WELCOME, DATA, DROPPED, END})

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ConsoleParameters(Wire):
    """What `console.attach` needs. The agent connects to `host`:`port` before `dial_until`; the session ends with the task.

    `mode` log: send the log from `offset` on, at most `bytes_max`; a negative offset counts from the log's end.
    """

    session_id: UUID
    allocation_id: UUID
    mode: Literal["attach", "log"]
    host: Annotated[str, Field(min_length=1, max_length=253)]
    port: Annotated[int, Field(strict=True, ge=1, le=65535)]
    secret_sha256: Sha256
    dial_until: Instant
    offset: Annotated[int, Field(strict=True, ge=-INTEGER_MAX, le=INTEGER_MAX)] = 0
    bytes_max: Annotated[int, Field(strict=True, ge=0, le=LOG_BYTES_MAX)] = 0


HostKey = Annotated[
    str, Field(max_length=2_048, pattern=r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]+={0,2}$")
]
"""A public host key of SSH, in the form `ssh-ed25519 AAAA...`."""


class MachineConsole(Exact):
    """What `metal.console` needs besides the BMC: the session, and what an operator has decided about the BMC's SSH server.

    `host_key`: the only one that is trusted. `shared`: a console that is shared with the command line of the BMC may be entered.
    """

    attach: ConsoleParameters
    host_key: HostKey
    shared: Truth = False


class ConsoleHello(Wire):
    """The agent's first frame: which session it serves, and proof that it read the task."""

    session_id: UUID
    secret_sha256: Sha256


class ConsoleEnd(Wire):
    """Why the agent ends the session. `offset`: where the part of the log began that it sent; absent for `attach`."""

    reason: Annotated[str, Field(max_length=32, pattern=r"^[a-z_]+$")]
    detail: Annotated[str, Field(max_length=300, pattern=STORABLE)] = ""
    offset: Whole | None = None


class ConsoleReport(Wire):
    """The result of `console.attach`: why the session ended, and the bytes each way; never the content."""

    reason: Annotated[str, Field(max_length=32, pattern=r"^[a-z_]+$")]
    bytes_to_guest: Whole
    bytes_from_guest: Whole
    bytes_dropped: Whole


class FrameRefused(Exception):
    """The other side sent something that is no frame of this protocol, or one that is too large."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """One frame: its kind, the length of its payload in four bytes (big-endian), the payload."""
    assert kind in KINDS, "the kinds are fixed"
    assert len(payload) <= FRAME_BYTES_MAX, "the sender cuts what is larger"
    return kind + len(payload).to_bytes(HEADER_BYTES - 1, "big") + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """The next frame; None at the end of the stream. Raises `FrameRefused`, ConnectionError."""
    try:
        header = await reader.readexactly(HEADER_BYTES)
        kind, length = header[:1], int.from_bytes(header[1:], "big")
        if kind not in KINDS or length > FRAME_BYTES_MAX:
            raise FrameRefused(f"kind {kind!r} with {length} bytes is no frame of a console")
        return kind, await reader.readexactly(length)
    except asyncio.IncompleteReadError as short:
        if short.partial:
            raise FrameRefused("the stream ended within a frame") from short
        return None


def count_of(payload: bytes) -> int:
    """The number that a `DROPPED` frame carries, at most `INTEGER_MAX`. Raises `FrameRefused`."""
    if len(payload) != 8:
        raise FrameRefused("a count has eight bytes")
    number = int.from_bytes(payload, "big")
    if number > INTEGER_MAX:
        raise FrameRefused(f"a count is at most {INTEGER_MAX}")
    return number


def counted(number: int) -> bytes:
    """A `DROPPED` frame: so many bytes of output were not sent."""
    return frame(DROPPED, number.to_bytes(8, "big"))
