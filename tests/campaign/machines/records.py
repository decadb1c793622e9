"""What was seen of machines: by their BMCs and disks, in the database, and in the certificates that a tenant would verify."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

Seen = dict[str, Any]
"""A line of evidence (tests/campaign/machines/place.py)."""


@dataclass(frozen=True)
class RunSight:
    """A run of a machine as it was read last. `late_seconds`: at most so long it was seen open after its deadline."""

    id: UUID
    machine: str
    kind: str
    step: str
    allocation_id: UUID | None
    outcome: str | None
    failure: str | None
    late_seconds: float = 0.0


@dataclass(frozen=True)
class Quarantined:
    """A quarantine of a slot of a machine, ended or not."""

    machine: str
    reason: str
    evidence: str | None
    source: str


@dataclass(frozen=True)
class Certified:
    """The wipe certificate of an allocation: when the wipe ended, by the server's clock, or why it proves nothing."""

    allocation_id: UUID
    ended_at: datetime | None
    problem: str | None = None


@dataclass
class MachineHistory:
    """The evidence of a campaign about its machines; empty where there are none."""

    seen: dict[str, list[Seen]] = field(default_factory=dict)
    """Of each machine, in the order in which it was written."""
    runs: dict[UUID, RunSight] = field(default_factory=dict)
    quarantines: list[Quarantined] = field(default_factory=list)
    certificates: dict[UUID, Certified] = field(default_factory=dict)
    strange_passwords: list[str] = field(default_factory=list)
    """A sentence for each time that a BMC had a password which the newest two of the store do not open."""
    left: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each BMC says at the end, when nothing is allocated."""
    open_tasks: list[str] = field(default_factory=list)
    """Tasks of sites that were open at the end."""
