"""A small TCP proxy with configurable faults, and a seeded choice of them.

A cut holds bytes back in one direction or both, as a broken network does: neither end is notified, and what was
held back goes through when the cut is over, as TCP's repetitions would see to. A reset ends every connection at once and
refuses new ones. In those cuts the proxy's own TCP still acknowledges; where that matters,
let it `vanish`. Lost and reordered packets are visible to a TCP client only as delays and as odd boundaries of what it
reads: `JITTER`, `LOSS`, `TRICKLE` and `STALL` produce those. Everything runs in one thread with a separate event loop;
call from any thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TypeVar

from tests.support.waiting import let_others_run, pause

DELAY_SECONDS = 0.15
CONNECT_SECONDS_MAX = 5.0
CHUNK_BYTES = 65_536
JITTER_SECONDS_MAX = 0.3
LOSS_SHARE = 0.25
"""So many chunks lose a packet."""
RETRANSMISSION_SECONDS = (0.2, 0.2, 0.4, 0.8)
"""RFC 6298: Linux repeats after 200 ms, and doubles that each time."""
TRICKLE_BYTES = 512
"""So many bytes of each chunk arrive one by one; the rest arrives as one piece, so that large bodies end in time."""

# socket(7), SO_ATTACH_FILTER: a filter of one instruction, "keep 0 bytes" (BPF_RET | BPF_K), lets every segment be lost.
_SO_ATTACH_FILTER = 26
_LOSE_EVERYTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_FILTER_PROGRAM = struct.pack("HxxxxxxP", 1, ctypes.addressof(_LOSE_EVERYTHING))

T = TypeVar("T")


class Mode(StrEnum):
    """What a proxy does with what goes through it."""

    PASS = "pass"
    DROP_REQUESTS = "drop_requests"  # client to server
    DROP_ANSWERS = "drop_answers"  # server to client
    CUT = "cut"  # both
    RESET = "reset"
    DELAY = "delay"
    JITTER = "jitter"  # each chunk is late by another time
    LOSS = "loss"  # some chunks wait for a repetition, and those behind them wait too
    TRICKLE = "trickle"  # bytes arrive one by one
    STALL = "stall"  # half of each chunk passes, the other half when the mode is over
    HALF_CLOSE = "half_close"  # the server's side of each present connection ends, requests still pass


TROUBLES = tuple(mode for mode in Mode if mode is not Mode.PASS)
_HOLDS_REQUESTS = {Mode.DROP_REQUESTS, Mode.CUT}
_HOLDS_ANSWERS = {Mode.DROP_ANSWERS, Mode.CUT}


class Proxy:
    """Listens on a free port for the connections of one client process to one server."""

    def __init__(self, proxies: Proxies, name: str, server_port: int) -> None:
        self.name = name
        self.port = 0
        self.passed_bytes = 0
        self.vanished = 0
        """Connections that were lost for good."""
        self._proxies = proxies
        self._server_port = server_port
        self._mode = Mode.PASS
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._half_closed: set[asyncio.StreamWriter] = set()
        self._random = random.Random(name)

    def set_mode(self, mode: Mode) -> None:
        """Do this from now on."""

        async def change() -> None:
            self._mode = mode
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
            if mode is Mode.RESET:
                for writer in list(self._writers):
                    _reset(writer)
            if mode is Mode.HALF_CLOSE:
                for writer in list(self._clients):
                    self._half_closed.add(writer)
                    with suppress(OSError):
                        writer.write_eof()

        self._proxies.run(change())

    @property
    def mode(self) -> Mode:
        """What it does now."""
        return self._mode

    def vanish(self) -> None:
        """Lose from now on, for good, every segment that today's clients send: unlike in a cut, none is acknowledged."""

        async def vanish() -> None:
            for writer in list(self._clients):
                own: socket.socket = writer.get_extra_info("socket")
                own.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _FILTER_PROGRAM)
                self.vanished += 1

        self._proxies.run(vanish())

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._clients.add(writer)
        try:
            if self._mode is Mode.RESET:
                _reset(writer)
                return
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                answers, requests = await asyncio.open_connection("127.0.0.1", self._server_port)
            self._writers.add(requests)
            try:
                back = asyncio.create_task(self._pump(answers, writer, _HOLDS_ANSWERS))
                await self._pump(reader, requests, _HOLDS_REQUESTS)
                await back
            finally:
                self._writers.discard(requests)
                requests.transport.abort()
        except (OSError, TimeoutError):
            return
        finally:
            self._writers.discard(writer)
            self._clients.discard(writer)
            self._half_closed.discard(writer)
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, holding: set[Mode]) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if late_seconds := self._late_seconds():
                    await pause(late_seconds, self._changed)
                while self._mode in holding:
                    await self._changed.wait()
                for piece in self._pieces(data):
                    await self._write(piece, writer)
                    while self._mode is Mode.STALL and piece is not data:
                        await self._changed.wait()
                self.passed_bytes += len(data)
        with suppress(OSError):
            # An end of stream is forwarded like any other byte: not while it is held back.
            while self._mode in holding:
                await self._changed.wait()
            writer.write_eof()

    def _late_seconds(self) -> float:
        """How late the next chunk is."""
        match self._mode:
            case Mode.DELAY:
                return DELAY_SECONDS
            case Mode.JITTER:
                return self._random.uniform(0, JITTER_SECONDS_MAX)
            case Mode.LOSS if self._random.random() < LOSS_SHARE:
                return self._random.choice(RETRANSMISSION_SECONDS)
            case _:
                return 0.0

    def _pieces(self, data: bytes) -> Sequence[bytes]:
        """In which pieces a chunk arrives."""
        if self._mode is Mode.TRICKLE:
            return [*(bytes([byte]) for byte in data[:TRICKLE_BYTES]), data[TRICKLE_BYTES:]]
        if self._mode is Mode.STALL and len(data) > 1:
            return [data[: len(data) // 2], data[len(data) // 2 :]]
        return [data]

    async def _write(self, piece: bytes, writer: asyncio.StreamWriter) -> None:
        if writer in self._half_closed or not piece:
            return
        writer.write(piece)
        await writer.drain()
        if self._mode is Mode.TRICKLE:
            await let_others_run()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, as a firewall or a dead host's successor does; a plain close would send FIN."""
    own: socket.socket = writer.get_extra_info("socket")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Proxies:
    """All proxies of a test, in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self.by_name: dict[str, Proxy] = {}

    def make(self, name: str, server_port: int) -> Proxy:
        """A proxy to a server of this machine, listening."""

        async def make() -> Proxy:
            proxy = Proxy(self, name, server_port)
            await proxy._listen()
            return proxy

        proxy = self.by_name[name] = self.run(make())
        return proxy

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine in the proxies' thread and answer its result."""

        async def wrapped() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(10)

    @contextmanager
    def troubled(self, name: str, mode: Mode) -> Iterator[None]:
        """This proxy misbehaves for the length of the context, and passes everything afterwards."""
        self.by_name[name].set_mode(mode)
        try:
            yield
        finally:
            self.by_name[name].set_mode(Mode.PASS)

    def close(self) -> None:
        """End every connection and the thread."""

        async def end() -> None:
            # What a cancelled connection's callback would print.
            self._loop.set_exception_handler(lambda *_: None)
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


class Chooser:
    """The same troubles in the same order for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def plan(self, names: Sequence[str], modes: Sequence[Mode] = TROUBLES) -> list[tuple[str, Mode]]:
        """Every proxy once, in an order and with a trouble of the seed's choice."""
        order = self._random.sample(list(names), len(names))
        return [(name, self._random.choice(modes)) for name in order]

    def seconds(self, least: float, most: float) -> float:
        """How long a trouble lasts."""
        return self._random.uniform(least, most)
