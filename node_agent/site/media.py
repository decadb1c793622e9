"""The media that an agent serves for its machines: each while the agent holds the lease under which it was published.

The secret of a medium's path is derived from its one-time token, so that every agent to which the token is sealed serves it under
one path, and finds at the BMC whether the medium there is this one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry

from node_agent.media.medium import CommonMedium, MediumUnusable, PlainFile
from node_agent.media.metrics import MediaMetrics
from node_agent.media.publications import (
    FILE_NAME,
    IMAGE_SECONDS_MAX,
    SECONDS_MAX,
    Publications,
    TooManyPublished,
)
from node_agent.media.server import MediaServer
from node_agent.settings import Settings
from node_agent.site.lease import Lease
from node_agent.site.problems import NotDone
from node_agent.wire.deploy_medium import DeployMedium

log = structlog.get_logger("node_agent.site.media")

_DERIVED: Final = b"berth medium path\n"


@dataclass(frozen=True)
class MediaPlace:
    """Where media are served, and which: `url` is what BMCs reach."""

    url: str
    host: str
    port: int
    file: Path
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, settings: Settings) -> MediaPlace | None:
        """As the settings say; None if this agent serves no media. Raises OSError (ssl.SSLError is one) for unusable files."""
        if settings.site_media_url is None or settings.deploy_medium_file is None:
            return None
        tls = None
        if settings.site_media_certificate_file is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(settings.site_media_certificate_file, settings.site_media_key_file)
        host, port = settings.site_media_host, settings.site_media_port
        return cls(settings.site_media_url, host, port, settings.deploy_medium_file, tls)


class SiteMedia:
    """The media of one agent. `place`: None if it serves none."""

    def __init__(self, place: MediaPlace | None, lease: Lease, registry: CollectorRegistry) -> None:
        self._place = place
        self._lease = lease
        self._publications = Publications()
        self._server = MediaServer(self._publications, MediaMetrics(registry))
        self._opened: dict[tuple[int, ...], CommonMedium] = {}
        self._paths: dict[UUID, str] = {}

    async def start(self) -> None:
        """Listen. Raises OSError."""
        if self._place is not None:
            await self._server.start(self._place.host, self._place.port, self._place.tls)
            log.info("serving_media", url=self._place.url, medium=str(self._place.file))

    async def stop(self) -> None:
        """Serve nothing any more."""
        await self._server.stop()
        for medium in self._opened.values():
            medium.close()

    async def publish(self, medium: DeployMedium, lease_fence: int) -> str:
        """Serve the machine's medium under this lease, in place of another one of it; the URL for its BMC. Raises NotDone."""
        place = self.require_place()
        self.withdraw(medium.node_id)
        try:
            common = await asyncio.to_thread(self._common, place.file)
            path = self._publications.publish(
                common, medium.written(), SECONDS_MAX, secret=_secret(medium.token),
                is_served=lambda: self._lease.fence == lease_fence and self._lease.seconds_left() > 0,
            )  # fmt: skip
        except (MediumUnusable, TooManyPublished, ValueError) as error:
            raise NotDone("no_medium", f"the medium cannot be served: {error}") from error
        self._paths[medium.node_id] = path
        return place.url + path

    def publish_image(self, image: PlainFile, name: str, secret: str, lease_fence: int) -> str:
        """Serve the image of a firmware under this lease; the URL for the BMC. Raises NotDone."""
        place = self.require_place()
        try:
            path = self._publications.publish_image(
                image, name, IMAGE_SECONDS_MAX, secret=secret,
                is_served=lambda: self._lease.fence == lease_fence and self._lease.seconds_left() > 0,
            )  # fmt: skip
        except (TooManyPublished, ValueError) as error:
            raise NotDone("no_medium", f"the image cannot be served: {error}") from error
        return place.url + path

    def withdraw_image(self, url: str) -> None:
        """Serve the image of this URL no longer."""
        if self._place is not None:
            self._publications.withdraw(url.removeprefix(self._place.url))

    def require_place(self) -> MediaPlace:
        """Where media are served. Raises NotDone if this agent serves none."""
        if self._place is None:
            what = "set BERTH_SITE_MEDIA_URL and BERTH_DEPLOY_MEDIUM_FILE"
            raise NotDone("no_medium", f"this agent serves no media: {what}")
        return self._place

    def withdraw(self, node_id: UUID) -> None:
        """Serve the machine's medium no longer."""
        path = self._paths.pop(node_id, None)
        if path is not None:
            self._publications.withdraw(path)

    def _common(self, file: Path) -> CommonMedium:
        """The medium of the file, opened once for each build of it."""
        try:
            found = file.stat()
        except OSError as error:
            raise MediumUnusable(f"{file}: {error.strerror}") from error
        build = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if build not in self._opened:
            self._opened[build] = CommonMedium(file)
        return self._opened[build]


def is_medium_of(image: str, token: str) -> bool:
    """Whether the image that a BMC names is the medium with this token, whichever agent serves it."""
    return image.endswith(f"/media/{_secret(token)}/{FILE_NAME}")


def _secret(token: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(_DERIVED + token.encode()).digest()).decode().rstrip("=")
