"""What an allocation has taken of the host's devices, on disk: written before the first one is bound.

devices/<allocation>.taking   functions that may be bound to vfio-pci; no guest has had them
                     .passed  the same file: a guest may have had them
                     .reset   the same file: they are reset, and proven so

A state is reached by renaming, which needs no space on a full disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal
from uuid import UUID

from pydantic import ValidationError

from berth.process.durable_directories import sync_directory
from node_agent.durable_files import write_durably
from node_agent.wire.fields import Closed

State = Literal["taking", "passed", "reset"]
_STATES: tuple[State, ...] = ("taking", "passed", "reset")


class TakenFunction(Closed):
    """A PCI function, the driver that it had, and whether the guest gets it; the others of its card are only bound."""

    address: str
    driver_before: str | None
    is_passed: bool


class Taken(Closed):
    """Everything that one allocation has taken."""

    functions: list[TakenFunction]

    def passed(self) -> list[str]:
        """The addresses of those that the guest gets."""
        return [one.address for one in self.functions if one.is_passed]


class TakenDevices:
    """The directory of these files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, allocation_id: UUID) -> tuple[State, Taken] | None:
        """What the allocation has taken, or None. Raises OSError also for a file that is damaged."""
        for state in _STATES:
            try:
                return state, Taken.model_validate_json(self._file(allocation_id, state).read_bytes())
            except FileNotFoundError:
                continue
            except ValidationError as error:
                raise OSError(f"what allocation {allocation_id} has taken cannot be read: {error}") from error
        return None

    def begin(self, allocation_id: UUID, taken: Taken) -> None:
        """Write it down, in place of what was reset before. Raises OSError."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._file(allocation_id, "reset").unlink(missing_ok=True)
        write_durably(self._file(allocation_id, "taking"), taken.model_dump_json().encode())

    def advance(self, allocation_id: UUID, before: State, after: State) -> None:
        """Reach the next state. Raises OSError."""
        self._file(allocation_id, before).rename(self._file(allocation_id, after))
        sync_directory(self._directory)

    def forget(self, allocation_id: UUID) -> None:
        """Remove what is there of the allocation; a missing file is fine. Raises OSError."""
        for state in _STATES:
            with suppress(FileNotFoundError):
                self._file(allocation_id, state).unlink()
                sync_directory(self._directory)

    def has(self, allocation_id: UUID) -> bool:
        """Whether the allocation has taken something, also where its file is damaged. Raises OSError."""
        return any(self._file(allocation_id, state).exists() for state in _STATES)

    def all(self) -> Iterator[UUID]:
        """Every allocation that has taken something; files of other names are passed over. Raises OSError."""
        if self._directory.exists():
            for file in sorted(self._directory.iterdir()):
                if file.suffix.removeprefix(".") in _STATES:
                    with suppress(ValueError):
                        yield UUID(file.stem)

    def of_others(self, allocation_id: UUID) -> dict[str, UUID]:
        """Functions that other allocations have taken and not reset, by address. Raises OSError also for a damaged file."""
        held: dict[str, UUID] = {}
        for other in set(self.all()) - {allocation_id}:
            known = self.load(other)
            if known is not None and known[0] != "reset":
                held |= {one.address: other for one in known[1].functions}
        return held

    def _file(self, allocation_id: UUID, state: State) -> Path:
        return self._directory / f"{allocation_id}.{state}"
