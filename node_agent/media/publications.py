"""Which machine's medium is served under which secret path, and until when."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from node_agent.media.medium import Content, MediumChanged, PlainFile
from node_agent.media.placeholder import CONFIGURATION_BYTES

PUBLISHED_MAX: Final = 1_024
SECONDS_MAX: Final = 3_600.0
FILE_NAME: Final = "deploy.iso"
"""BMCs refuse media whose name does not end so."""
IMAGE_SECONDS_MAX: Final = 14_400.0
_IMAGE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class TooManyPublished(Exception):
    """As many media are published as can be; withdraw some, or wait until they expire."""


@dataclass(frozen=True)
class OwnMedium:
    """A machine's medium: the common one with this configuration, of `CONFIGURATION_BYTES`. An image has none."""

    medium: Content
    configuration: bytes
    expires_at: float
    is_served: Callable[[], bool] = lambda: True

    @property
    def etag(self) -> str:
        """Names these bytes; the same for the same configuration and common medium."""
        return f'"{hashlib.sha256(self.medium.sha256.encode() + self.configuration).hexdigest()[:32]}"'

    def read(self, start: int, length: int) -> bytes:
        """Bytes of it. Raises MediumChanged, also when it is not to be served any more."""
        if not self.is_served():
            raise MediumChanged("it is not served any more")
        return self.medium.read(self.configuration, start, length)


class Publications:
    """The media of this process, in memory alone: after a restart each is published again, under another path.

    A path has 256 random bits and is compared by digest. `monotonic` is the clock of the expiry. Not safe from several threads.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._published: dict[bytes, OwnMedium] = {}

    def __len__(self) -> int:
        self._forget_expired()
        return len(self._published)

    def publish(
        self, medium: Content, configuration: bytes, seconds: float, *, secret: str | None = None,
        is_served: Callable[[], bool] = lambda: True,
    ) -> str:  # fmt: skip
        """Serve the medium for this long, while `is_served`; its path, which nothing else must log.

        `secret`: of the path, where it replaces another medium; None: a new one. Raises TooManyPublished, ValueError.
        """
        if len(configuration) != CONFIGURATION_BYTES:
            raise ValueError(f"a configuration has {CONFIGURATION_BYTES} bytes, not {len(configuration)}")
        if not 0 < seconds <= SECONDS_MAX:
            raise ValueError(f"a medium is served for at most {SECONDS_MAX:.0f} seconds, not {seconds}")
        if len(self) >= PUBLISHED_MAX:
            raise TooManyPublished(f"{PUBLISHED_MAX} media are published; withdraw some, or wait until they expire")
        secret = secret or secrets.token_urlsafe(32)
        ends = self._monotonic() + seconds
        self._published[_key(secret)] = OwnMedium(medium, configuration, ends, is_served)
        return f"/media/{secret}/{FILE_NAME}"

    def publish_image(
        self, image: PlainFile, name: str, seconds: float, *, secret: str, is_served: Callable[[], bool]
    ) -> str:  # fmt: skip
        """Serve the image of a firmware under this name for this long, while `is_served`; its path.

        Raises TooManyPublished, ValueError.
        """
        if not 0 < seconds <= IMAGE_SECONDS_MAX or not _IMAGE_NAME.fullmatch(name):
            raise ValueError(f"an image is served for at most {IMAGE_SECONDS_MAX:.0f} seconds, under a plain name")
        if len(self) >= PUBLISHED_MAX:
            raise TooManyPublished(f"{PUBLISHED_MAX} media are published; withdraw some, or wait until they expire")
        path = f"/firmware/{secret}/{name}"
        self._published[_key(path)] = OwnMedium(image, b"", self._monotonic() + seconds, is_served)
        return path

    def withdraw(self, path: str) -> None:
        """Serve this path no longer: once the deploy system has enrolled its URL is worth nothing to a reader of the BMC."""
        self._published.pop(_key(_secret(path) or ""), None)

    def find(self, path: str) -> OwnMedium | None:
        """The medium of a path; None if there is none, or its time is over."""
        secret = _secret(path)
        found = None if secret is None else self._published.get(_key(secret))
        if found is not None and self._monotonic() >= found.expires_at:
            self.withdraw(path)
            return None
        return found if found is None or found.is_served() else None

    def _forget_expired(self) -> None:
        now = self._monotonic()
        self._published = {key: one for key, one in self._published.items() if now < one.expires_at}


def _secret(path: str) -> str | None:
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "firmware":
        return path  # an image is found by its whole path
    return parts[2] if len(parts) == 4 and parts[:2] == ["", "media"] and parts[3] == FILE_NAME else None


def _key(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", errors="replace")).digest()
