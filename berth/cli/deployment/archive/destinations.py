"""The destination that a command line names: a directory, or a bucket with the settings of `BERTH_ARCHIVE_S3_...`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from berth.cli.endings import USAGE, Refused
from berth.cli.session import Session

if TYPE_CHECKING:
    from berth.cli.deployment.archive.bucket import Credentials
    from berth.cli.deployment.archive.directory import Destination

_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([\w!.*'()/-]*))?", re.ASCII)


def find_destination(session: Session, name: str) -> Destination:
    """The destination of this name. Raises `Refused`, and `ArchiveProblem` for settings that do not fit."""
    if name.startswith("s3://"):
        return _bucket(session, name)
    # Start-up stays light for the commands that have no archive.
    from berth.cli.deployment.archive.directory import Directory

    if not name or "://" in name:
        raise Refused(
            f"{name or 'an empty name'} is no directory and no s3://bucket/prefix", code="usage", exit_code=USAGE
        )
    return Directory(Path(name))


def _bucket(session: Session, name: str) -> Destination:
    # As above.
    from berth.cli.deployment.archive.bucket import Bucket, Place

    named = _S3.fullmatch(name)
    prefix = (named[2] or "").strip("/") if named else ""
    if named is None or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise Refused(f"{name} must look like s3://bucket/prefix", code="usage", exit_code=USAGE)
    settings = session.settings
    place = Place(
        named[1], prefix, settings.archive_s3_region, settings.archive_s3_endpoint, insecure_http=session.insecure_http
    )
    return Bucket(place, _credentials(session))


def _credentials(session: Session) -> Credentials:
    # As above.
    from berth.cli.deployment.archive.bucket import Credentials, read_credentials

    settings = session.settings
    key, secret, token = (
        settings.archive_s3_access_key_id, settings.archive_s3_secret_access_key, settings.archive_s3_session_token
    )  # fmt: skip
    if key and secret and settings.archive_s3_credentials_file is None:
        return Credentials(key, secret.get_secret_value(), token.get_secret_value() if token else None)
    if settings.archive_s3_credentials_file is not None and not (key or secret or token):
        return read_credentials(settings.archive_s3_credentials_file)
    raise Refused(
        "the archive needs credentials: set BERTH_ARCHIVE_S3_ACCESS_KEY_ID and BERTH_ARCHIVE_S3_SECRET_ACCESS_KEY, or"
        " BERTH_ARCHIVE_S3_CREDENTIALS_FILE alone",
        code="archive_credentials",
    )
