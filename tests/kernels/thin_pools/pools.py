"""A real thin pool of LVM on a loop device, apart from the LVM of this machine, and guests' directories on it.

Needs root and device mapper: tests with it are marked `kernel` (docs: CONTRIBUTING.md), and run by `make test-kernel`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from node_agent.drivers.libvirt.disk_pool.contents import PoolName
from node_agent.drivers.libvirt.disk_pool.pool import DiskPool, PoolSettings
from node_agent.drivers.libvirt.records import GuestDirectory, GuestRecord

MIB = 1 << 20
DISK_BYTES = 96 * MIB
MARKER = b"what the tenant wrote, in the clear"
CONFIGURATION = """
devices {{ filter = [ "a|^{device}$|", "r|.*|" ] use_devicesfile = 0 obtain_device_list_from_udev = 0 }}
global {{ locking_dir = "{directory}/lock" use_lvmpolld = 0 event_activation = 0 }}
activation {{ monitoring = 0 }}
backup {{ backup = 0 archive = 0 }}
"""


def why_unavailable() -> str | None:
    """What this machine lacks for a thin pool, or None."""
    if os.geteuid() != 0:
        return "a thin pool needs root"
    for program in ("lvcreate", "thin_check", "losetup", "qemu-img", "qemu-io"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program} is not installed"
    for module in ("loop", "dm-thin-pool"):
        subprocess.run(["modprobe", "-q", module], check=False)
    return None if Path("/sys/class/misc/device-mapper").exists() else "the kernel has no device mapper"


@dataclass
class ThinPool:
    """One volume group with one pool, `disks`. `medium` is what its bytes are on."""

    group: str
    medium: Path
    directory: Path
    device: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def allocations(self) -> Path:
        return self.directory / "guests" / "allocations"

    def pool(self, overcommit: float = 1.0, name: str = "disks", seconds_max: float = 60.0) -> DiskPool:
        """The pool as an agent has it. Each is without memory of the others."""
        return DiskPool(PoolSettings(PoolName(self.group, name), overcommit, seconds_max), self.allocations)

    def sh(self, command: str, *, must_end_well: bool = True) -> str:
        """What a command of the shell prints, with `$VG` set."""
        done = subprocess.run(
            ["bash", "-euc", command], capture_output=True, text=True, check=False, env={**os.environ, "VG": self.group}
        )
        if must_end_well and done.returncode != 0:
            raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def guest(self, allocation_id: UUID | None = None, fence: int = 1) -> tuple[GuestDirectory, GuestRecord]:
        """The directory and record of a new guest, with an image of 8 MiB."""
        allocation_id = allocation_id or uuid.uuid4()
        directory = GuestDirectory(self.allocations / str(allocation_id))
        directory.path.mkdir(parents=True)
        make_base(directory.base)
        record = GuestRecord(
            allocation_id=allocation_id, fence=fence, slots=[0, 3], state="provisioning", image_sha256="0" * 64,
            image_format="qcow2", memory_bytes=64 * MIB, processors=1, disk_bytes=DISK_BYTES,
        )  # fmt: skip
        directory.save(record)
        return directory, record

    def volumes(self) -> list[str]:
        """The names of all thin volumes, by LVM."""
        return self.sh("lvs --noheadings -o lv_name -S 'pool_lv!=\"\"' $VG").split()

    def mapped_mib(self) -> float:
        """What the pool has given out."""
        return float(self.sh("lvs --noheadings -o data_percent $VG/disks")) * self._size_mib() / 100

    def _size_mib(self) -> float:
        return float(self.sh("lvs --noheadings --units m --nosuffix -o lv_size $VG/disks"))


def make_base(path: Path) -> None:
    """An image of qcow2 whose first MiB is not zero."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(path), str(8 * MIB)], check=True)
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write -P 0x41 0 1M", str(path)], check=True, capture_output=True)


def qemu_io(directory: GuestDirectory, *commands: str) -> subprocess.CompletedProcess[str]:
    """What QEMU does with the guest's disk, as its key opens it."""
    options = (
        "driver=qcow2,encrypt.format=luks,encrypt.key-secret=key,file.driver=host_device,"
        f"file.filename=/dev/{directory.volume}"
    )
    secret = f"secret,id=key,file={directory.key}"
    parts = [part for command in commands for part in ("-c", command)]
    return subprocess.run(
        ["qemu-io", "-t", "none", "--object", secret, *parts, "--image-opts", options], capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@contextmanager
def thin_pool(directory: Path, mib: int = 480) -> Iterator[ThinPool]:
    """A pool of so many MiB; in the end nothing of it is left."""
    medium = directory / "medium"
    with medium.open("wb") as file:
        file.truncate((mib + 40) * MIB)
    device = subprocess.run(
        ["losetup", "--find", "--show", str(medium)], check=True, capture_output=True, text=True
    ).stdout.strip()
    (directory / "lock").mkdir()
    (directory / "lvm.conf").write_text(CONFIGURATION.format(device=device, directory=directory))
    before = {name: os.environ.get(name) for name in ("LVM_SYSTEM_DIR", "PATH", "DM_DISABLE_UDEV")}
    os.environ["LVM_SYSTEM_DIR"] = str(directory)
    os.environ["PATH"] = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if not Path("/run/udev/control").exists():
        os.environ["DM_DISABLE_UDEV"] = "1"
    made = ThinPool(f"berthtest{uuid.uuid4().hex[:8]}", medium, directory, device)
    try:
        made.sh(f"vgcreate -q $VG {device}")
        made.sh(f"lvcreate -q --type thin-pool --zero y -L {mib}M --poolmetadatasize 4M -n disks $VG")
        # A pool that is full would let writes wait for a minute first.
        made.sh("lvchange -q --errorwhenfull y $VG/disks")
        yield made
    finally:
        made.sh("vgremove -f -y $VG", must_end_well=False)
        subprocess.run(["losetup", "--detach", device], check=False)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        medium.unlink()


def not_zero(path: Path) -> int:
    """How many MiB of a device or file are not zero."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        count = 0
        while piece := os.read(descriptor, MIB):
            count += bool(piece.strip(b"\0"))
        return count
    finally:
        os.close(descriptor)


def write_in_the_clear(device: Path, place: int) -> None:
    """As a tenant whose QEMU is taken over would: past the encryption."""
    with device.open("r+b") as file:
        file.seek(place)
        file.write(MARKER * 100)
        file.flush()
        os.fsync(file.fileno())
