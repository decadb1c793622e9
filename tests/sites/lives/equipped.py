"""A machine of libvirt with an NVMe, a SATA and a virtio disk and a TPM (swtpm); what they hold is read from outside."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from berth.local.machines.domains import console_devices, uefi_system
from berth.local.machines.networks import port_arguments, reachable
from berth.local.machines.raw_disks import RawContent, read_raw
from tests.api.nodes.attestation.swtpm import MISSING, WHY_NOT, lock_out, running_tpm, serving_tpm
from tests.metal.qemu import MAC
from tests.redfish.emulator import defined
from tests.sites.renting.emulated_tenancy import ADDRESS

SIZES = {"NVME1": 320 << 20, "SATA1": 192 << 20, "DISK1": 512 << 20}
"""By serial."""
NODES = {"NVME1": "/dev/nvme0n1", "SATA1": "/dev/sda", "DISK1": "/dev/vda"}
"""How the systems on the machine name them."""
TPM_STATES = Path("/var/lib/libvirt/swtpm")
_FILES = {"NVME1": "nvme.raw", "SATA1": "sata.raw", "DISK1": "disk.raw"}


class Equipped:
    """The machine's UUID and its parts as files."""

    def __init__(self, directory: Path, uuid: str) -> None:
        self.directory, self.uuid = directory, uuid

    @property
    def console(self) -> Path:
        """What it has written to its serial console."""
        return self.directory / "console"

    def disk(self, serial: str) -> Path:
        """The file that is the disk."""
        return self.directory / _FILES[serial]

    def raw(self, marker: bytes) -> dict[str, RawContent]:
        """Every byte of each disk, by serial."""
        return {serial: read_raw(self.disk(serial), marker) for serial in SIZES}

    def marked(self, marker: bytes) -> set[str]:
        """The disks on which the marker is."""
        return {serial for serial, content in self.raw(marker).items() if content.has_marker}

    def lock_tpm(self, directory: Path) -> None:
        """Give the machine, before its first start, a TPM that refuses keys; `directory` is made for it."""
        with running_tpm(directory) as tcti:
            lock_out(tcti, directory)
        state = TPM_STATES / self.uuid
        shutil.copytree(directory / "tpm-state", state / "tpm2")
        for path in (state, *state.rglob("*")):
            shutil.chown(path, "tss", "tss")

    def tpm(self, directory: Path) -> str:
        """What a copy of its TPM says of its owner and its NV indices; `directory` is made for it."""
        shutil.copytree(TPM_STATES / self.uuid / "tpm2", directory / "state")
        with serving_tpm(directory / "state", directory / "tpm") as tcti:
            said = [
                subprocess.run(
                    ["tpm2_getcap", "-T", tcti, what], capture_output=True, text=True, check=True, timeout=60
                )
                for what in ("properties-variable", "handles-nv-index", "handles-persistent")
            ]
        return "\n".join(one.stdout for one in said)


@contextmanager
def equipped(place: Path) -> Iterator[Equipped]:
    """A machine that is off, with empty disks and a new TPM; its port 22 is reached at its own address."""
    if MISSING:
        pytest.skip(WHY_NOT)
    system = uefi_system(place)
    for serial in ("NVME1", "SATA1"):
        with (place / _FILES[serial]).open("wb") as empty:
            empty.truncate(SIZES[serial])
    (place / _FILES["NVME1"]).chmod(0o666)  # libvirt knows nothing of it: this version has no emulated NVMe
    sata = (
        "<disk type='file' device='disk'><driver name='qemu' type='raw' discard='unmap'/>"
        f"<source file='{place / _FILES['SATA1']}'/><target dev='sda' bus='sata'/><serial>SATA1</serial></disk>"
    )
    tpm = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
    arguments = [
        *port_arguments(MAC, ADDRESS),
        "-drive", f"id=nvme1,if=none,format=raw,discard=unmap,file={place}/{_FILES['NVME1']}",
        "-device", "nvme,drive=nvme1,serial=NVME1,addr=0x1c",
    ]  # fmt: skip
    devices = f"{sata}{tpm}{console_devices(place)}"
    with reachable([ADDRESS]), defined(place, system, devices, SIZES["DISK1"], arguments) as uuid:
        yield Equipped(place, uuid)
