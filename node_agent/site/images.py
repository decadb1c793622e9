"""The image of a firmware: fetched by the agent, compared with its SHA-256, and served to the one BMC that needs it.

A BMC is sent to the agent alone, so that it needs no route to a vendor and reads nothing that was not compared.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit
from uuid import UUID

import httpx

from node_agent.media.medium import PlainFile
from node_agent.site.media import SiteMedia
from node_agent.site.problems import NotDone
from node_agent.wire.firmware import IMAGE_BYTES_MAX, FirmwareOrder

FETCH_SECONDS_MAX: Final = 900.0
READ_SECONDS: Final = 30.0
_DERIVED: Final = b"berth firmware path\n"


@dataclass
class _Copy:
    """An image on disk. `file` None: it is not fetched yet. `users`: updates that serve it, or wait for it."""

    users: int = 0
    file: BinaryIO | None = None
    fetching: asyncio.Lock = field(default_factory=asyncio.Lock)


class SiteImages:
    """Images in unnamed files of a directory, which the kernel deletes with the process: one file for each SHA-256."""

    def __init__(self, media: SiteMedia, directory: Path, bytes_max: int = IMAGE_BYTES_MAX) -> None:
        self._media = media
        self._directory = directory
        self._bytes_max = bytes_max
        self._random = secrets.token_bytes(32)
        self._copies: dict[str, _Copy] = {}

    @asynccontextmanager
    async def served(self, order: FirmwareOrder, task_id: UUID, lease_fence: int) -> AsyncIterator[str]:
        """Fetch the image, and serve it until the block ends, under a path that only this process knows; its URL.

        Raises NotDone: `no_medium`, `image_unavailable`, `image_too_large`, `image_mismatch`.
        """
        self._media.require_place()
        async with self._copy(order) as file:
            secret = hashlib.sha256(_DERIVED + self._random + task_id.bytes + bytes.fromhex(order.sha256)).hexdigest()
            url = self._media.publish_image(PlainFile(file, order.sha256), _name(order.image_url), secret, lease_fence)
            try:
                yield url
            finally:
                self._media.withdraw_image(url)

    @asynccontextmanager
    async def _copy(self, order: FirmwareOrder) -> AsyncIterator[BinaryIO]:
        """The compared image, which updates that need it at once share. The last of them closes it."""
        copy = self._copies.setdefault(order.sha256, _Copy())
        copy.users += 1
        try:
            async with copy.fetching:
                if copy.file is None:
                    with ExitStack() as unless_compared:
                        file = unless_compared.enter_context(_temporary(self._directory))
                        await self._fetch(order, file)
                        unless_compared.pop_all()
                        copy.file = file
            yield copy.file
        finally:
            copy.users -= 1
            if copy.users == 0:
                self._copies.pop(order.sha256)
                if copy.file is not None:
                    copy.file.close()

    async def _fetch(self, order: FirmwareOrder, file: BinaryIO) -> None:
        digest, size = hashlib.sha256(), 0
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS_MAX),
                httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=READ_SECONDS) as client,
                client.stream("GET", order.image_url, headers={"Accept-Encoding": "identity"}) as response,
            ):
                if response.status_code != 200:
                    raise NotDone("image_unavailable", f"the server answered {response.status_code} for the image")
                async for chunk in response.aiter_raw():
                    size += len(chunk)
                    if size > self._bytes_max:
                        raise NotDone("image_too_large", f"the image is larger than {self._bytes_max} bytes")
                    digest.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(file.flush)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
            raise NotDone("image_unavailable", f"the image was not fetched: {type(error).__name__}") from error
        if digest.hexdigest() != order.sha256:
            raise NotDone("image_mismatch", f"the image of {size} bytes has the SHA-256 {digest.hexdigest()}")


def _temporary(directory: Path) -> BinaryIO:
    try:
        return tempfile.TemporaryFile(dir=directory)
    except OSError as error:
        raise NotDone("image_unavailable", f"the image cannot be stored: {error.strerror}") from error


def _name(url: str) -> str:
    """The name of the image in its URL: some BMCs know the kind of an image by how its name ends."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", urlsplit(url).path.rpartition("/")[2])[-100:].lstrip("._-")
    return name or "image.bin"
