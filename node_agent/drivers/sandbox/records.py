"""What the sandbox keeps on disk for each allocation: one directory, and one record in it that says what should be.

allocations/<id>/   record.json   what it is and whether it should run; renamed to record.releasing when it is taken down
                    image.img     its own copy of the image
                    home/         where the tenant lands; user-data, if any, lies in it
                    host_key      its SSH host key
                    guest.lock    held (flock) by the guest process while it runs
                    guest.json    the guest's process id, start time, port
                    ready         the marker that the guest writes at the end of its start
                    guest.log     what the guest process itself had to say
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from node_agent.drivers.records import AllocationRecord, RecordDirectory
from node_agent.wire.fields import Closed


class GuestRecord(AllocationRecord):
    """What should be."""

    host: str
    port_first: int
    port_last: int
    hostname: str
    ssh_public_keys: list[str]
    image_sha256: str
    listens: bool = True
    writes_marker: bool = True


class GuestState(Closed):
    """What is, by the guest's own word. `start_ticks` is field 22 of /proc/<pid>/stat: together they name one
    process."""

    pid: int
    start_ticks: int
    port: int | None = None


class AllocationDirectory(RecordDirectory[GuestRecord]):
    """The paths of one allocation's directory, and its record."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, GuestRecord)
        self.image_file = path / "image.img"
        self.home = path / "home"
        self.host_key_file = path / "host_key"
        self.lock_file = path / "guest.lock"
        self.state_file = path / "guest.json"
        self.marker_file = path / "ready"
        self.log_file = path / "guest.log"

    @property
    def device(self) -> str:
        """The name under which a release proves that this directory is wiped."""
        return f"allocations/{self.path.name}"

    def guest_state(self) -> GuestState | None:
        """What the guest last said of itself."""
        try:
            return GuestState.model_validate_json(self.state_file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
