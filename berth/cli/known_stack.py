"""The local stack that a state directory describes: its addresses and its secrets, as far as commands need them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from berth.process.json_objects import JsonObject

ENDPOINTS_FILE = "endpoints.json"
SECRETS_DIRECTORY = "secrets"
ADMIN_KEY_FILE = "admin-key"
DATABASE_URL_FILE = "database-url"
NATS_URL_FILE = "nats-url"
BACKUP_URL_FILE = "backup-database-url"


class StackProblem(Exception):
    """The local stack, or its state directory, cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class KnownStack:
    """Addresses and secrets found in a state directory; a field is None if the directory does not hold it."""

    api_url: str | None
    admin_key: str | None
    database_url: str | None
    nats_url: str | None
    temporal_address: str | None
    backup_database_url: str | None = None


def read_stack(state_directory: Path) -> KnownStack:
    """Read what a state directory says about its stack. Raises `StackProblem` if a file is damaged or not readable."""
    directory = state_directory.absolute()
    endpoints = read_json(directory / ENDPOINTS_FILE)
    secrets = directory / SECRETS_DIRECTORY
    return KnownStack(
        api_url=endpoints.get("api_url"),
        admin_key=read_secret(secrets / ADMIN_KEY_FILE),
        database_url=read_secret(secrets / DATABASE_URL_FILE),
        nats_url=read_secret(secrets / NATS_URL_FILE),
        temporal_address=endpoints.get("temporal_address"),
        backup_database_url=read_secret(secrets / BACKUP_URL_FILE),
    )


def read_json(path: Path) -> JsonObject:
    """Read a file that holds a JSON object; empty if there is no file. Raises `StackProblem` if it is damaged."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StackProblem(f"{path} is damaged ({error}); start over with --fresh") from error
    if not isinstance(found, dict):
        raise StackProblem(f"{path} is damaged (not an object); start over with --fresh")
    return found


def read_secret(path: Path) -> str | None:
    """Read a secret file; None if there is no file. Raises `StackProblem` if reading is not permitted."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StackProblem(f"cannot read {path}: {error.strerror}; run as the user that started the stack") from error
