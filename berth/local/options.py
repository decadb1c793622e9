"""What a local stack consists of, as its caller asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from berth.local.fleet import Guests
from berth.local.state import PUBLIC_PORT_WISHED
from berth.local.supervision import RestartPolicy


@dataclass(frozen=True)
class StackOptions:
    """What to start. Outside servers are named by their address."""

    state_directory: Path
    agents: int = 3
    fresh: bool = False
    port: int | None = None
    wished_port: int | None = PUBLIC_PORT_WISHED
    database_url: str | None = None
    nats_url: str | None = None
    temporal_address: str | None = None
    trust_domain: str = "berth.local"
    launcher: str | None = None
    """A module that starts each process of ours (`ProcessPlan.launcher`); for tests."""
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More variables for a process of ours, by the process's name."""
    guests: Guests | None = None
    """Real guests, on the two nodes of `plan_guest_fleet` instead of `agents` pretended ones."""
    backup_directory: Path | None = None
    """Stream WAL of the stack's PostgreSQL into it; None: no backup."""
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    """How often what dies is started again."""
    ha: bool = False
    """PostgreSQL as three servers under Patroni instead of one."""
    read_standbys: bool = False
    """The standbys of these serve reads of the API."""
