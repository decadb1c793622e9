"""A machine whose disks are sparse files, with its /sys and /dev, and erase tools that a test scripts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node_agent.deploy_system.effects.contract import Host, ToolRun
from node_agent.deploy_system.effects.tools import run_tool
from node_agent.wire.deploy_tasks import DiskIdentity

MIB = 2**20
DISK_BYTES = 24 * MIB
Tool = Callable[[Sequence[str]], ToolRun]


@dataclass
class Machine:
    """The host that the work is given; `tools` answer in place of programs, all others are run."""

    root: Path
    tools: dict[str, Tool] = field(default_factory=dict)
    ran: list[list[str]] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for name in ("sys/block", "sys/bus/pci/devices", "sys/class/net", "sys/class/dmi/id", "dev", "run"):
            (self.root / name).mkdir(parents=True)

    @property
    def host(self) -> Host:
        return Host(
            self.run, self.root / "sys", self.root / "dev", self.root / "proc", self.root / "run", stopped=self.stopped
        )

    def run(self, command: Sequence[str], timeout_seconds: float) -> ToolRun:
        self.ran.append(list(command))
        if (tool := self.tools.get(command[0])) is not None:
            return tool(command)
        return run_tool(command, timeout_seconds)

    def progress(self, step: str, detail: str) -> None:
        self.said.append((step, detail))

    def add_disk(
        self, name: str, serial: str | None, size_bytes: int = DISK_BYTES, page_80: str | None = None,
        wwid: str | None = None, discards: bool = False,
    ) -> Path:  # fmt: skip
        """A disk that is a sparse file."""
        block = self.root / "sys/block" / name
        (block / "queue").mkdir(parents=True)
        (block / "device").mkdir()
        (block / "size").write_text(f"{size_bytes // 512}\n")
        (block / "ro").write_text("0\n")
        (block / "queue/rotational").write_text("0\n")
        (block / "queue/discard_max_bytes").write_text("1073741824\n" if discards else "0\n")
        if serial is not None:
            (block / "serial").write_text(f"{serial}\n")
        if page_80 is not None:
            (block / "device/vpd_pg80").write_bytes(b"\0\x80\0" + bytes([len(page_80)]) + page_80.encode())
        if wwid is not None:
            (block / "device/wwid").write_text(f"{wwid}\n")
        path = self.root / "dev" / name
        with path.open("wb") as file:
            file.truncate(size_bytes)
        return path

    def add_pci(self, address: str, pci_class: str, driver: str | None) -> None:
        """A PCI function with or without a driver."""
        device = self.root / "sys/bus/pci/devices" / address
        device.mkdir()
        (device / "class").write_text(f"0x{pci_class}\n")
        if driver is not None:
            (device / "driver").symlink_to(f"../../drivers/{driver}")

    def add_variable(self, name: str, value: bytes, attributes: int = 7) -> None:
        """A UEFI variable."""
        directory = self.host.efi_variables
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(attributes.to_bytes(4, "little") + value)


def identity(serial: str, size_bytes: int = DISK_BYTES) -> DiskIdentity:
    return DiskIdentity(serial=serial, size_bytes=size_bytes)


def filled(path: Path, marker: bytes = b"a tenant was here") -> None:
    """Content on the whole disk."""
    size = path.stat().st_size
    block = (marker + os.urandom(4096))[:4096]
    with path.open("r+b") as file:
        for _ in range(size // 4096):
            file.write(block)


def streaming(content: bytes, chunk_bytes: int = 65_536) -> Callable[[str], AbstractContextManager[Iterator[bytes]]]:
    """An image server's answer."""

    @contextmanager
    def open_image(url: str) -> Iterator[Iterator[bytes]]:
        yield (content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes))

    return open_image
