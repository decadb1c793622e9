"""What a target of the audit's stream does, and how it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.audit.list_store import Entry


class TargetUnavailable(Exception):
    """The target takes nothing now. `reason` is a stable word for the metric; the message contains no secret."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


class Connection(Protocol):
    """One connection to a target, not used again after a failure. Each method raises `TargetUnavailable`."""

    async def send(self, rows: Sequence[Entry]) -> None:
        """Return once the target, or its kernel, has acknowledged all rows, in their order."""

    async def require_open(self) -> None:
        """Return if the target has not ended the connection."""

    async def close(self) -> None:
        """End the connection; raises nothing."""


class Target(Protocol):
    """A system that receives the audit."""

    @property
    def name(self) -> str:
        """Its name among the streams."""

    @property
    def settle_seconds(self) -> float:
        """How long a connection must outlive a batch before the batch counts as received."""

    async def connect(self) -> Connection:
        """A new connection. Raises `TargetUnavailable`."""
