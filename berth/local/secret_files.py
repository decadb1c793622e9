"""Secrets of a local stack: one file each, readable by their owner alone, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from berth.local.servers import new_password
from berth.local.state import StackProblem, write_whole

ADMIN_KEY = "admin-key"
DATABASE_URL = "database-url"
POSTGRES_PASSWORD = "postgres-password"


def write_secret(path: Path, text: str) -> None:
    """Replace a secret file, 0600 from its first byte on."""
    write_whole(path, text, mode=0o600)


def read_secret(path: Path) -> str | None:
    """The content of a secret file; None if there is none. Raises `StackProblem` if it may not be read."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackProblem(f"cannot read {path}: {error.strerror}; run as the user who started the stack") from error


def secret_once(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path`, made and stored first if there is none."""
    found = read_secret(path)
    if found is None:
        found = make()
        write_secret(path, found + "\n")
    return found


def postgres_password(secrets_directory: Path) -> str:
    """The local PostgreSQL's superuser password."""
    return secret_once(secrets_directory / POSTGRES_PASSWORD, new_password)
