"""Where the CLI finds a stack: endpoints.json and the secrets beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from berth.local import secret_files
from berth.local.state import StateDirectory

if TYPE_CHECKING:
    from berth.local.processes import Endpoints

FILE = "endpoints.json"


@dataclass(frozen=True)
class KnownStack:
    """What a state directory tells about its stack; every field is None where it tells nothing."""

    api_url: str | None
    admin_key: str | None
    database_url: str | None
    nats_url: str | None
    temporal_address: str | None


def write_endpoints(state: StateDirectory, endpoints: Endpoints) -> None:
    """Tell the CLI where things are. No secret is in this file."""
    content = {
        "api_url": endpoints.api_url,
        "node_api_url": endpoints.node_api_url,
        "nats_url": endpoints.nats_url,
        "temporal_address": endpoints.temporal_address,
    }
    state.write(FILE, content)


def read_stack(state_directory: Path) -> KnownStack:
    """What the state directory tells. Raises `StackProblem` if its files are damaged or may not be read."""
    state = StateDirectory(state_directory)
    endpoints = state.read(FILE)
    return KnownStack(
        api_url=endpoints.get("api_url"),
        admin_key=secret_files.read_secret(state.secrets / secret_files.ADMIN_KEY),
        database_url=secret_files.read_secret(state.secrets / secret_files.DATABASE_URL),
        nats_url=endpoints.get("nats_url"),
        temporal_address=endpoints.get("temporal_address"),
    )
