"""The bytes of an image as they go to the disk: fetched, hashed as fetched, decompressed by zstd where they are compressed."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, Final

from node_agent.deploy_system.effects.raw_disk import CHUNK_BYTES

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
QCOW2_MAGIC: Final = b"QFI\xfb"
ZSTD_WINDOW_LOG_MAX: Final = 27
"""128 MiB: what a machine of 512 MiB can still decompress."""


class FetchBroke(Exception):
    """The image did not arrive whole; the message says why."""


class NotRaw(Exception):
    """The image has a format that is not written to disks; the message names it."""


class ImageSource:
    """Iterates over the image as it is served, and knows its digest and length afterwards."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._digest = hashlib.sha256()
        self.fetched_bytes = 0
        self._head = b""
        while len(self._head) < 4 and (chunk := self._next()):
            self._head += chunk

    @property
    def sha256(self) -> str:
        """Of what was fetched so far, in hex."""
        return self._digest.hexdigest()

    @property
    def is_zstd(self) -> bool:
        """Whether the image is compressed."""
        return self._head.startswith(ZSTD_MAGIC)

    def require_raw(self) -> None:
        """Raise NotRaw for a qcow2 image. Raises FetchBroke for an empty one."""
        if not self._head:
            raise FetchBroke("the server sent nothing")
        if self._head.startswith(QCOW2_MAGIC):
            raise NotRaw("qcow2 needs a copy of the whole image in memory; publish it as raw, compressed by zstd")

    def fetched(self) -> Iterator[bytes]:
        """Every chunk. Raises FetchBroke."""
        yield self._head
        while chunk := self._next():
            yield chunk

    def _next(self) -> bytes:
        try:
            chunk = next((chunk for chunk in self._chunks if chunk), b"")
        except OSError as error:
            raise FetchBroke(f"after {self.fetched_bytes} bytes: {error.strerror or error}") from error
        self._digest.update(chunk)
        self.fetched_bytes += len(chunk)
        return chunk


@contextmanager
def plain(source: ImageSource) -> Iterator[Iterator[bytes]]:
    """The decompressed image. Its iterator raises FetchBroke, and NotRaw where zstd refuses the bytes. Leaving it ends zstd."""
    if not source.is_zstd:
        with closing(source.fetched()) as chunks:  # type: ignore[type-var]
            yield chunks
        return
    command = ["zstd", "-dcq", f"--long={ZSTD_WINDOW_LOG_MAX}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as unpacker:
        feeder = _Feeder(source, unpacker.stdin)
        feeder.start()
        try:
            yield _unpacked(unpacker, feeder)
        finally:
            unpacker.kill()
            feeder.join()


class _Feeder(threading.Thread):
    """Hands what is fetched to zstd; ends when zstd does."""

    def __init__(self, source: ImageSource, pipe: IO[bytes] | None) -> None:
        super().__init__(name="image", daemon=True)
        self._source = source
        self._pipe = pipe
        self.failure: Exception | None = None

    def run(self) -> None:
        """Until the image ends, the connection breaks, or zstd ends."""
        assert self._pipe is not None
        try:
            with self._pipe as pipe:
                for chunk in self._source.fetched():
                    pipe.write(chunk)
        except (BrokenPipeError, ValueError):
            return  # zstd has ended, and says why
        except Exception as error:  # noqa: BLE001 - carried to the thread that writes
            self.failure = error


def _unpacked(unpacker: subprocess.Popen[bytes], feeder: _Feeder) -> Iterator[bytes]:
    assert unpacker.stdout is not None
    assert unpacker.stderr is not None
    while chunk := unpacker.stdout.read(CHUNK_BYTES):
        yield chunk
    feeder.join()
    if feeder.failure is not None:
        raise feeder.failure
    if unpacker.wait() != 0:
        raise NotRaw(f"zstd: {unpacker.stderr.read(300).decode(errors='replace').strip()}")
