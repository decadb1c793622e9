"""Secrets of a local stack: one file each, readable by their owner alone, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from berth.cli.known_stack import read_secret
from berth.local.servers import new_password
from berth.local.state import write_whole

POSTGRES_PASSWORD = "postgres-password"


def write_secret(path: Path, text: str) -> None:
    """Replace a secret file, 0600 from its first byte on."""
    write_whole(path, text, mode=0o600)


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
