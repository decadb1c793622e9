"""What the libvirt driver keeps on disk for each allocation.

allocations/<id>/   record.json   what it is and whether it should run; renamed to record.releasing when it is taken down
                    base          hard link to the cached image: the image is kept for as long as a disk depends on it
                    disk.qcow2    the tenant's disk: what it wrote, encrypted, over the image
                    disk.volume   in its place with a thin pool: the volume that the disk is on, `<volume group>/<volume>`
                    disk.wiped    the name of the disk, or of disk.volume, once it is overwritten: renaming needs no space. The
                                  last file of a release; after a rebuild it is there until the new disk is
                    disk.key      the key of the disk
                    uefi-vars.fd  the variables of its firmware, if it boots by UEFI: the tenant can write there
                    names.json    its names in its tenant's network
                    vlan          the VLAN of its tenant's network
                    seed.iso      what the guest reads at its start, with its SSH host key
                    console.log   what it wrote to its serial port (with console.log.0 and .1: virtlogd rotates it)
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import structlog
from pydantic import Field

from berth.process.durable_directories import sync_directory
from node_agent.drivers.libvirt.placement import GuestPlacement
from node_agent.drivers.records import AllocationRecord, RecordDirectory
from node_agent.durable_files import write_durably
from node_agent.wire.images import BootFirmware, Readiness
from node_agent.wire.networks import NetworkOrder

log = structlog.get_logger("node_agent.libvirt")
NAME_BYTES_MAX = 200


class GuestRecord(AllocationRecord):
    """What should be: everything that the guest's definition is made of."""

    image_sha256: str
    image_format: str
    memory_bytes: int
    processors: int
    disk_bytes: int
    host_key: str = ""
    """The one of its seed; without cloud-init the one that its SSH server showed at its first start."""
    nonce: str = ""
    firmware: BootFirmware = BootFirmware.BIOS
    cloud_init: bool = True
    readiness: Readiness = Readiness.MESSAGE
    readiness_port: int | None = None
    check_port: int | None = None
    """The host's port that leads to `readiness_port`, from this host alone."""
    network: NetworkOrder | None = None
    """Its tenant network; None: QEMU's user network, which reaches nothing."""
    placement: GuestPlacement | None = None
    """Processors and NUMA nodes of the host; None: it is not pinned."""
    shared_processors: list[int] = Field(default_factory=list)
    """Of a guest that is not pinned: the processors that it may use; empty: all."""
    huge_page_kib: int = 0
    """Size of the host's pages that its memory is made of; 0: ordinary ones."""
    gpus: list[str] = Field(default_factory=list)
    """PCI addresses of the host's GPUs that it gets."""
    network_mtu: int | None = None
    """Largest IP packet of its card; None: that of Ethernet, 1500."""


class GuestDirectory(RecordDirectory[GuestRecord]):
    """The paths of one allocation's directory, and its record."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, GuestRecord)
        self.base = path / "base"
        self.disk = path / "disk.qcow2"
        self.volume_file = path / "disk.volume"
        self.wiped_disk = path / "disk.wiped"
        self.key = path / "disk.key"
        self.seed = path / "seed.iso"
        self.uefi_variables = path / "uefi-vars.fd"
        self.console_log = path / "console.log"
        self.names = path / "names.json"
        self.vlan = path / "vlan"

    def save_order(self, record: GuestRecord) -> None:
        """Save a new record. Raises OSError.

        Names and VLAN are in files apart: an agent of the version before, which replaces this one, reads the record.
        """
        network = record.network
        if network is not None:
            if network.names:
                write_durably(self.names, json.dumps(network.names).encode())
            if network.vlan is not None:
                write_durably(self.vlan, str(network.vlan).encode())
            else:
                self.vlan.unlink(missing_ok=True)
            record = record.model_copy(update={"network": network.model_copy(update={"names": [], "vlan": None})})
        self.save(record)

    def order_of(self, record: GuestRecord) -> NetworkOrder | None:
        """The order of the guest's network, with names and VLAN; without those whose file cannot be read."""
        if record.network is None:
            return None
        order = self._with(record.network, "names", self.names)
        return self._with(order, "vlan", self.vlan)

    def _with(self, order: NetworkOrder, member: str, file: Path) -> NetworkOrder:
        try:
            found = json.loads(file.read_bytes())
            return NetworkOrder.model_validate({**order.model_dump(mode="json"), member: found})
        except FileNotFoundError:
            return order
        except (OSError, ValueError) as error:
            log.error(f"{member}_of_guest_unreadable", file=str(file), why=str(error)[:300])
            return order

    @property
    def volume(self) -> str | None:
        """The volume that the disk is on, or was until it was wiped; None: the disk is a file. Raises OSError.

        In a file apart: an agent of the version before reads the record, and does not start a guest without `disk.qcow2`.
        """
        if (noted := _text(self.volume_file)) is not None:
            return noted or None
        return None if self.disk.exists() else _text(self.wiped_disk) or None

    @property
    def is_wiped(self) -> bool:
        """Whether the disk was overwritten, and no other was begun since."""
        return self.wiped_disk.exists() and not self.volume_file.exists() and not self.disk.exists()

    @property
    def device_before(self) -> str | None:
        """The name of the disk that was wiped before the one that is there or begun; None: there was none. Raises OSError."""
        if self.is_wiped or (wiped := _text(self.wiped_disk)) is None:
            return None
        return wiped or self._file_device

    def note_volume(self, volume: str) -> None:
        """The disk will be on this volume. Raises OSError."""
        if not self.volume_file.exists():
            write_durably(self.volume_file, volume.encode())

    def mark_wiped(self) -> None:
        """The file or the volume of the disk is overwritten. Needs no space. Raises OSError."""
        for file in (self.disk, self.volume_file):
            with suppress(FileNotFoundError):
                file.rename(self.wiped_disk)
                sync_directory(self.path)

    def forget_wiped(self) -> None:
        """Another disk is there. Raises OSError."""
        self.wiped_disk.unlink(missing_ok=True)

    def remove_empty(self) -> None:
        """Remove the directory, in which at most `disk.wiped` is left; a missing one is fine. Raises OSError."""
        self.forget_wiped()
        super().remove_empty()

    @property
    def device(self) -> str:
        """The name under which a release proves that the disk is wiped. Raises OSError."""
        return self.volume or self._file_device

    @property
    def _file_device(self) -> str:
        return f"allocations/{self.path.name}/{self.disk.name}"


def _text(file: Path) -> str | None:
    """What the file names; None if there is none. Raises OSError."""
    try:
        # Of a wipe that was cut short the disk has its name already, and its zeros still.
        with file.open("rb") as named:
            return named.read(NAME_BYTES_MAX).decode(errors="replace").strip("\0 \n")
    except FileNotFoundError:
        return None
