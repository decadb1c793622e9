"""Logins that `berth login` stored: one file of the user, 0600, with the tokens for each API address."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from berth.cli.endings import Refused
from berth.process.json_objects import JsonObject

FILE = "logins.json"
LOCK = "logins.lock"


@dataclass(frozen=True, slots=True)
class Login:
    """The tokens for an API, and where they are renewed and revoked. `expires_at`: of the access token, Unix seconds."""

    issuer: str
    client_id: str
    token_endpoint: str
    revocation_endpoint: str | None
    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float


def logins_directory() -> Path:
    """The user's directory for logins: `berth` below `XDG_CONFIG_HOME`, else below `~/.config`."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".config") / "berth"


def read_login(address: str) -> Login | None:
    """The login for an API address; None if there is none. Raises `Refused` for a file that others may read, or a damaged one."""
    found = _read().get(_name(address))
    return None if found is None else _login(found)


def store_login(address: str, login: Login) -> None:
    """Store the login for an API address in place of an earlier one; the caller holds the lock."""
    _write({**_read(), _name(address): asdict(login)})


def drop_login(address: str) -> None:
    """Remove the login for an API address, if there is one; the caller holds the lock."""
    kept = {name: login for name, login in _read().items() if name != _name(address)}
    if kept:
        _write(kept)
    else:
        (logins_directory() / FILE).unlink(missing_ok=True)


@contextmanager
def locked_logins() -> Iterator[None]:
    """Let one process at a time change the logins: a refresh token may be used once. The lock ends with the process."""
    directory = logins_directory()
    directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    descriptor = os.open(directory / LOCK, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _name(address: str) -> str:
    return address.rstrip("/")


def _read() -> JsonObject:
    path = logins_directory() / FILE
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise _damaged(path) from error
    if mode & 0o077:
        raise Refused(f"{path} holds tokens and others may read it: run `chmod 600 {path}`", code="login_exposed")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(found, dict):
        raise _damaged(path)
    return found


def _login(found: Any) -> Login:
    names = {one.name for one in fields(Login)}
    if not isinstance(found, dict) or found.keys() != names or not isinstance(found["expires_at"], int | float):
        raise _damaged(logins_directory() / FILE)
    optional = ("refresh_token", "revocation_endpoint")
    texts = [found[name] for name in names - {"expires_at"} if name not in optional or found[name] is not None]
    if not all(isinstance(text, str) for text in texts):
        raise _damaged(logins_directory() / FILE)
    return Login(**found)


def _damaged(path: Path) -> Refused:
    return Refused(f"{path} is damaged; remove it and run `berth login`", code="login_damaged")


def _write(logins: JsonObject) -> None:
    """Replace the file, 0600 from its first byte on; a crash leaves the old one."""
    path = logins_directory() / FILE
    beside = path.with_name(f"{FILE}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(logins, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
