"""An archive in a bucket of S3-compatible storage: objects appear whole or not at all, and a name is written once.

The store must refuse a PUT of an existing name (`If-None-Match: *`); one that does not is refused before the first write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from berth.cli.deployment.archive.directory import written_before
from berth.cli.deployment.archive.problems import ArchiveProblem
from berth.process.server_addresses import is_here

if TYPE_CHECKING:
    from obstore.store import S3Credential

CONNECT_SECONDS = 5
REQUEST_SECONDS = 60
RETRIES_MAX = 6
RETRY_SECONDS = 60.0
"""For one request with its repetitions, after 5xx and lost connections."""
PROBE = ".conditional-writes"
_FAILED = (BaseError, OSError)
"""What the library raises; for 404 it is a `FileNotFoundError`."""
_ANSWER = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status:? (\d{3})")


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key. Its parts are never printed."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bucket is. `endpoint` None: Amazon S3 in the region."""

    bucket: str
    prefix: str
    region: str
    endpoint: str | None = None
    insecure_http: bool = False
    """Whether http:// may be used beyond this machine."""

    @property
    def url(self) -> str:
        """The endpoint. Raises `ArchiveProblem`."""
        if self.endpoint is None:
            return f"https://s3.{self.region}.amazonaws.com"
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ArchiveProblem(
                "archive_endpoint", "BERTH_ARCHIVE_S3_ENDPOINT must look like https://storage.example:9000"
            )
        if parts.scheme == "http" and not (self.insecure_http or is_here(parts.hostname)):
            raise ArchiveProblem(
                "archive_endpoint",
                f"{self.endpoint} would carry tenants' data unencrypted over a network; use https://, or allow it"
                " (BERTH_INSECURE_HTTP)",
            )
        return self.endpoint.rstrip("/")


def read_credentials(file: Path) -> Credentials:
    """The profile `default` of a file in the format of the AWS tools. Raises `ArchiveProblem`, which quotes nothing of it."""
    parser = ConfigParser(interpolation=None)
    try:
        with file.open() as opened:
            parser.read_file(opened)
        section = parser["default"]
        return Credentials(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token")
        )
    except OSError as error:
        raise ArchiveProblem("archive_credentials", f"{file} cannot be read: {error.strerror}") from error
    except (ConfigError, KeyError, ValueError):
        raise ArchiveProblem(
            "archive_credentials", f"{file} has no profile [default] with aws_access_key_id and aws_secret_access_key"
        ) from None


class Bucket:
    """A prefix of a bucket."""

    def __init__(
        self,
        place: Place,
        credentials: Credentials,
        *,
        retries: int = RETRIES_MAX,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        url = place.url
        self._name = f"s3://{place.bucket}/{place.prefix}".rstrip("/")
        self._is_conditional = False
        # Everything is given here, so that no variable of the environment (AWS_...) changes the meaning of a part.
        self._store = S3Store(
            place.bucket,
            prefix=place.prefix or None,
            endpoint=url,
            region=place.region,
            credential_provider=_provider(credentials),
            virtual_hosted_style_request=False,
            skip_signature=False,
            conditional_put="etag",
            client_options={
                "allow_http": url.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
            },
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=retry_seconds)},
        )

    @property
    def name(self) -> str:
        """The address, without credentials."""
        return self._name

    def names(self) -> list[str]:
        """Every object below the prefix, as a directory has them."""
        try:
            found = [str(item["path"]) for page in obstore.list(self._store) for item in page]
        except _FAILED as error:
            raise self._problem("archive_unreadable", "cannot be listed", error) from None
        return sorted(name for name in found if name.count("/") == 1 and not name.rpartition("/")[2].startswith("."))

    def read(self, name: str) -> bytes:
        """The object's content."""
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except _FAILED as error:
            raise self._problem("archive_unreadable", f"{name} cannot be read", error) from None

    def write(self, name: str, content: bytes) -> None:
        """Create the object, unless its name exists, and read it back."""
        if not self._is_conditional:
            self._require_conditional_writes()
        self._create(name, content)
        if self.read(name) != content:
            raise written_before(f"{self._name}/{name}")

    def _create(self, name: str, content: bytes) -> bool:
        """Whether the object was created; False: the name existed, perhaps because the answer to an earlier try was lost."""
        try:
            obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except _FAILED as error:
            reason = f"{name} cannot be written; nothing was deleted for it"
            raise self._problem("archive_not_written", reason, error) from None
        return True

    def _require_conditional_writes(self) -> None:
        """Raise `ArchiveProblem` if the store replaces an object despite the condition."""
        self._create(PROBE, b"")
        if self._create(PROBE, b""):
            raise ArchiveProblem(
                "archive_unsupported",
                f"{self._name} ignores If-None-Match, so that two runs could overwrite each other; use storage that supports"
                " conditional writes",
            )
        self._is_conditional = True

    def _problem(self, code: str, what: str, error: Exception) -> ArchiveProblem:
        """What the store answered, by its status and code alone: its text may repeat what was sent."""
        text = str(error)
        answer, status = _ANSWER.search(text), _STATUS.search(text)
        answered = [found[1] for found in (status, answer) if found]
        reason = (
            f"the storage answered {' '.join(answered)}"
            if answered
            else "no answer; check the endpoint and the network"
        )
        return ArchiveProblem(code, f"{self._name}: {what}: {reason}")


def _provider(credentials: Credentials) -> Callable[[], S3Credential]:
    """The credentials as a function, which the store asks before each request instead of reading the environment."""

    def provide() -> S3Credential:
        return {
            "access_key_id": credentials.access_key_id,
            "secret_access_key": credentials.secret_access_key,
            "token": credentials.session_token,
            "expires_at": None,
        }

    return provide
