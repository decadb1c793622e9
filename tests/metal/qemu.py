"""A machine as one process of QEMU under emulation: firmware, disks, a CD drive, a network port to the test's server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.support.waiting import wait_for

Firmware = Literal["uefi", "secure", "bios"]
DiskKind = Literal["virtio", "nvme", "sata", "scsi"]
OVMF = Path("/usr/share/OVMF")
MAC = "52:54:00:be:27:01"
SECOND_MAC = "52:54:00:be:27:02"
DISK_BYTES = 256 * 2**20


@dataclass
class Machine:
    """Its disks and firmware variables, which outlive each start."""

    directory: Path
    disks: dict[str, DiskKind]
    firmware: Firmware = "uefi"
    memory_mib: int = 384
    starts: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    switch_port: int | None = None
    """Frames sent to this UDP port arrive at the second network port."""
    serial_socket: Path | None = None
    """Where the serial port is; without one it is written to a file."""
    keys_awaited_seconds: int = 0
    """How long the firmware waits for a key before it starts something; a key typed while it initializes may be lost."""

    def __post_init__(self) -> None:
        for serial in self.disks:
            with self.disk(serial).open("wb") as file:
                file.truncate(self.sizes.get(serial, DISK_BYTES))
        if self.firmware != "bios":
            variables = "OVMF_VARS_4M.ms.fd" if self.firmware == "secure" else "OVMF_VARS_4M.fd"
            shutil.copy(OVMF / variables, self.directory / "variables.fd")

    def disk(self, serial: str) -> Path:
        """The file that is the disk."""
        return self.directory / f"{serial}.raw"

    @property
    def console(self) -> str:
        """What the last start wrote to its serial console."""
        return (self.directory / f"console-{self.starts}").read_text(errors="replace")

    @contextmanager
    def running(self, medium: Path | None = None, ssh_port: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The machine while it runs; killed at the end."""
        self.starts += 1
        process = subprocess.Popen(self._command(medium, ssh_port), stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)

    def boot_until_off(self, medium: Path, seconds_max: float = 500) -> None:
        """Start from the medium and wait until the machine has switched itself off."""
        with self.running(medium) as process:
            try:
                process.wait(seconds_max)
            except subprocess.TimeoutExpired as error:
                raise AssertionError(f"still on after {seconds_max} s:\n{self.console[-3000:]}") from error

    def _command(self, medium: Path | None, ssh_port: int | None) -> list[str]:
        serial = f"file:{self.directory}/console-{self.starts}"
        if self.serial_socket is not None:
            serial = f"unix:{self.serial_socket},server=on,wait=off"
        command = [
            "qemu-system-x86_64", "-accel", "tcg,tb-size=128", "-cpu", "qemu64", "-m", str(self.memory_mib), "-smp", "1",
            "-nodefaults", "-display", "none", "-no-reboot", "-serial", serial,
            "-uuid", "5be7b27e-0000-4000-8000-000000000001", "-object", "rng-random,id=rng,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=rng",
        ]  # fmt: skip
        if self.firmware == "bios":
            command += ["-machine", "q35", "-boot", "order=dc" if medium else "order=c"]
        else:
            secure = self.firmware == "secure"
            code = OVMF / ("OVMF_CODE_4M.secboot.fd" if secure else "OVMF_CODE_4M.fd")
            command += ["-machine", "q35,smm=on" if secure else "q35", "-global", "ICH9-LPC.disable_s3=1"]
            if secure:
                command += ["-global", "driver=cfi.pflash01,property=secure,value=on"]
            command += ["-drive", f"if=pflash,format=raw,readonly=on,file={code}"]
            command += ["-drive", f"if=pflash,format=raw,file={self.directory}/variables.fd"]
            if self.keys_awaited_seconds:
                command += ["-boot", f"menu=on,splash-time={self.keys_awaited_seconds * 1000}"]
        for number, (disk, kind) in enumerate(self.disks.items()):
            drive = f"id=d{number},if=none,format=raw,file={self.disk(disk)},discard=unmap,cache=writeback"
            command += ["-drive", drive, *_device(kind, number, disk)]
        if medium is not None:
            command += ["-drive", f"id=cd,if=none,format=raw,readonly=on,media=cdrom,file={medium}"]
            command += ["-device", "ide-cd,drive=cd,bus=ide.0,bootindex=0"]
        forward = f",hostfwd=tcp:127.0.0.1:{ssh_port}-:22" if ssh_port else ""
        command += ["-netdev", f"user,id=n{forward}", "-device", f"virtio-net-pci,netdev=n,mac={MAC},romfile="]
        if self.switch_port is not None:
            command += ["-netdev", f"socket,id=s,udp=127.0.0.1:9,localaddr=127.0.0.1:{self.switch_port}"]
            command += ["-device", f"virtio-net-pci,netdev=s,mac={SECOND_MAC},romfile="]
        return command


def _device(kind: DiskKind, number: int, serial: str) -> list[str]:
    if kind == "virtio":
        return ["-device", f"virtio-blk-pci,drive=d{number},serial={serial}"]
    if kind == "nvme":
        return ["-device", f"nvme,drive=d{number},serial={serial}"]
    if kind == "sata":
        return ["-device", f"ide-hd,drive=d{number},serial={serial},bus=ide.{number + 1}"]
    scsi = ["-device", f"virtio-scsi-pci,id=s{number}"]
    return [*scsi, "-device", f"scsi-hd,drive=d{number},bus=s{number}.0,serial={serial}"]


def wait_until_ssh(command: list[str], seconds_max: float = 400) -> str:
    """What the command prints, once SSH answers."""
    printed: list[str] = []

    def answers() -> bool:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return False
        printed.append(done.stdout)
        return done.returncode == 0

    wait_for(answers, "SSH with the expected host key", seconds_max)
    return printed[-1]
