"""What the suite needs of a driver: one class that constructs it, and a probe that finds out what is really there.

A probe uses no code of a driver (a test of this folder reads its imports): it examines processes, files and ports.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest

from node_agent.drivers.contract import Driver, Verb
from node_agent.protocol import Connection
from node_agent.settings import Settings


class Breach(AssertionError):
    """The driver breaks the contract; the message says how."""


def must(holds: object, otherwise: str) -> None:
    """Raise `Breach(otherwise)` unless it holds."""
    if not holds:
        raise Breach(otherwise)


class Tenant(Protocol):
    """A tenant with what a login needs, and with an image."""

    def provision(self, slots: list[int], **changes: Any) -> dict[str, Any]:
        """Parameters of a provision for these slots, with some of them changed."""


class Probe(ABC):
    """Reality, seen from outside."""

    @abstractmethod
    def processes(self) -> dict[UUID, set[int]]:
        """Every process of any allocation: its guest, and whatever its tenant started."""

    @abstractmethod
    def files(self) -> set[UUID]:
        """Allocations that have anything on the disk."""

    @abstractmethod
    def leases(self) -> dict[int, UUID]:
        """Every leased slot and its allocation."""

    @abstractmethod
    def snapshot(self) -> object:
        """Everything that a repeated phase must leave as it is, comparable: files with their content, leases, processes.
        Times and what the suite put there are left out."""

    @abstractmethod
    async def answers(self, connection: Connection, allocation_id: UUID) -> bool:
        """Whether this allocation's guest answers there with the expected host key, to its tenant."""

    @abstractmethod
    async def plant(self, connection: Connection, marker: str) -> None:
        """As the tenant: leave a file, and a process that outlives the login, both with `marker` in them."""

    @abstractmethod
    async def remains(self, connection: Connection, marker: str) -> bool:
        """As the tenant: whether the planted file is still there."""

    @abstractmethod
    def traces(self, marker: str) -> list[str]:
        """Where the marker is found: files, names of files, arguments and environments of processes."""

    def there(self) -> set[UUID]:
        """Allocations that anything is left of."""
        return {*self.processes(), *self.files(), *self.leases().values()}


class Harness(ABC):
    """One driver as the suite sees it."""

    name: str
    provision_phases: tuple[str, ...]
    release_phases: tuple[str, ...]
    verbs: Mapping[Verb, tuple[str, ...]]
    marks: tuple[pytest.MarkDecorator, ...] = ()
    """Of every test with this driver."""
    small_disk_bytes = 4 << 20
    """Enough for one allocation of `tenant`."""

    def unavailable(self) -> str | None:
        """Why this machine cannot run the driver, or None."""
        return None

    @abstractmethod
    def driver(self, settings: Settings) -> Driver:
        """The driver, as the agent constructs it."""

    @abstractmethod
    def directory(self, state_dir: Path) -> Path:
        """Where the driver keeps everything, so that the suite can fill the disk below it and see effects."""

    def clean(self, state_dir: Path) -> None:  # noqa: B027 - most have nothing to do
        """Remove what the driver kept outside of `state_dir`."""

    @abstractmethod
    def tenant(self, directory: Path) -> Tenant:
        """A tenant whose image is made in `directory`."""

    @abstractmethod
    def probe(self, state_dir: Path, tenant: Tenant) -> Probe:
        """The outside view of the node with this state directory."""


async def answers_tcp(connection: Connection, seconds_max: float = 5.0) -> bool:
    """Whether anything listens there."""
    try:
        async with asyncio.timeout(seconds_max):
            _, writer = await asyncio.open_connection(connection.host, connection.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
