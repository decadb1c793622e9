"""Images: fetched once, kept under their own hash; copied for each allocation and hashed again meanwhile, or linked.

A file in the cache is named after the SHA-256 of its bytes and appears there only by rename, after the bytes were
checked. Rot in the cache is found by the copy: the file is thrown away and fetched once more.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import structlog

from berth.process.durable_directories import sync_directory
from node_agent.drivers.contract import DriverFailure, Progress
from node_agent.drivers.downloads import Download
from node_agent.drivers.threads import in_thread
from node_agent.protocol import FailureCode
from node_agent.wire.images import ImageParameters

log = structlog.get_logger("node_agent.images")

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class ImageBounds:
    """Bounds of a cache: bytes of one image, number of images, bytes of all."""

    image_bytes_max: int
    images_max: int
    bytes_max: int


class ImageCache:
    """The directory `images/` of one node."""

    def __init__(self, directory: Path, bounds: ImageBounds) -> None:
        self._directory = directory
        self._bounds = bounds
        self._fetching: dict[str, asyncio.Lock] = {}

    async def place(self, image: ImageParameters, target: Path, progress: Progress) -> int:
        """Put a checked copy of `image` at `target`; returns its bytes. Raises DriverFailure with
        IMAGE_CHECKSUM_MISMATCH or IMAGE_DOWNLOAD_FAILED."""
        for _ in range(2):
            cached = await self._cached(image, progress)
            stop = threading.Event()
            try:
                size, digest = await in_thread(partial(copy_and_hash, cached, target, stop), stop)
            except FileNotFoundError:
                continue  # evicted in this very moment
            except OSError as error:
                raise DriverFailure(FailureCode.IMAGE_DOWNLOAD_FAILED, f"image {image.name}: {error}") from error
            if digest == image.sha256:
                return size
            log.error("image_cache_rotten", image=image.name, sha256=image.sha256, found=digest)
            cached.unlink(missing_ok=True)
        raise DriverFailure(FailureCode.IMAGE_CHECKSUM_MISMATCH, f"copies of image {image.name} keep differing from it")

    async def link(self, image: ImageParameters, target: Path, progress: Progress) -> None:
        """Make `target` a hard link to the cached image, which no one may write: it outlives the image's eviction.

        A target that is there is kept. Raises DriverFailure as `place` does.
        """
        while not await asyncio.to_thread(target.exists):
            cached = await self._cached(image, progress)
            try:
                await in_thread(partial(_link, cached, target))
            except OSError as error:
                if not await asyncio.to_thread(cached.exists):
                    continue  # evicted in this very moment
                raise DriverFailure(FailureCode.IMAGE_DOWNLOAD_FAILED, f"image {image.name}: {error}") from error

    def forget_partial(self) -> None:
        """Remove what an interrupted fetch left."""
        for aside in self._directory.glob(".fetch-*"):
            aside.unlink(missing_ok=True)

    async def _cached(self, image: ImageParameters, progress: Progress) -> Path:
        cached = self._directory / image.sha256
        async with self._fetching.setdefault(image.sha256, asyncio.Lock()):
            if not cached.exists():
                await self._fetch(image, cached, progress)
                self._evict(keep=cached)
        return cached

    async def _fetch(self, image: ImageParameters, cached: Path, progress: Progress) -> None:
        aside = self._directory / f".fetch-{secrets.token_hex(8)}"
        scheme = urlsplit(image.url).scheme
        try:
            if scheme == "file":
                source = Path(unquote(urlsplit(image.url).path))
                stop = threading.Event()
                _, digest = await in_thread(
                    partial(copy_and_hash, source, aside, stop, self._bounds.image_bytes_max), stop
                )
            elif scheme in ("http", "https"):
                digest = await Download(image.url, self._bounds.image_bytes_max, progress).to(aside)
            else:
                raise DriverFailure(
                    FailureCode.IMAGE_DOWNLOAD_FAILED, f"cannot fetch from a {scheme or 'relative'} URL"
                )
            if digest != image.sha256:
                detail = f"image {image.name} from {image.url} has SHA-256 {digest}, not {image.sha256}"
                raise DriverFailure(FailureCode.IMAGE_CHECKSUM_MISMATCH, detail)
            await in_thread(partial(_sync, aside))
            aside.rename(cached)
            sync_directory(self._directory)
        except (OSError, httpx.HTTPError, httpx.InvalidURL) as error:
            detail = f"image {image.name} from {image.url}: {str(error) or type(error).__name__}"
            raise DriverFailure(FailureCode.IMAGE_DOWNLOAD_FAILED, detail) from error
        finally:
            aside.unlink(missing_ok=True)

    def _evict(self, keep: Path) -> None:
        """Remove the images fetched longest ago until the rest is within the bounds.

        An image that a guest is linked to stays: its removal would free nothing.
        """
        found = {path: path.stat() for path in self._directory.iterdir() if not path.name.startswith(".")}
        count, total = len(found), sum(file.st_size for file in found.values())
        for path, file in sorted(found.items(), key=lambda entry: entry[1].st_mtime):
            if count <= self._bounds.images_max and total <= self._bounds.bytes_max:
                return
            if path != keep and file.st_nlink == 1:
                path.unlink(missing_ok=True)
                self._fetching.pop(path.name, None)
                count, total = count - 1, total - file.st_size


def _sync(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _link(cached: Path, target: Path) -> None:
    cached.chmod(0o444)
    target.hardlink_to(cached)


def copy_and_hash(source: Path, target: Path, stop: threading.Event, bytes_max: int | None = None) -> tuple[int, str]:
    """Copy in chunks; returns bytes and SHA-256 of what was written. Ends early, with OSError, once `stop` is set."""
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reading, target.open("wb") as writing:
        for chunk in _chunks(reading.fileno()):
            if stop.is_set():
                raise InterruptedError("the copy was interrupted")
            size += len(chunk)
            _within(size, bytes_max)
            digest.update(chunk)
            writing.write(chunk)
    return size, digest.hexdigest()


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, CHUNK_BYTES):
        yield chunk


def _within(size: int, bytes_max: int | None) -> None:
    if bytes_max is not None and size > bytes_max:
        raise OSError(f"it is larger than {bytes_max} bytes")
