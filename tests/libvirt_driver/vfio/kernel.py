"""A host's PCI bus as files, and a stand-in for the kernel behind those that are written: it binds, unbinds and resets.

Those files are FIFOs, which take each write as sysfs does. Reading, links and rights are those of real files.
"""

from __future__ import annotations

import os
import select
import shutil
import threading
from pathlib import Path
from types import TracebackType

GPUS = ["0000:0f:00.0", "0000:2d:00.0", "0000:44:00.0", "0000:5b:00.0"]
"""The first has a sound function beside it; the last two share an IOMMU group."""
SOUND = "0000:0f:00.1"
BRIDGE = "0000:43:00.0"
CONFIG = b"\xde\x10\x30\x23" + bytes(60)


class Kernel:
    """`with Kernel(root) as kernel`: the bus answers. `refused`: addresses that it binds to no driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refused: set[str] = set()
        self.resets: list[str] = []
        self.writes: list[tuple[str, str]] = []
        self._home: dict[str, str | None] = {}
        self._overrides: dict[str, str] = {}
        self._fifos: dict[int, Path] = {}
        self._end, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        (root / "proc").mkdir(parents=True, exist_ok=True)
        for driver in ("vfio-pci", "nvidia", "snd_hda_intel", "nvme", "pcieport"):
            (self._driver(driver)).mkdir(parents=True, exist_ok=True)
            self._fifo(self._driver(driver) / "unbind")
        self._fifo(root / "sys/bus/pci/drivers_probe")
        (root / "dev/vfio").mkdir(parents=True, exist_ok=True)
        for number, address in enumerate(GPUS):
            self.add(address, group=40 + min(number, 2), home="nvidia")
        self.add(SOUND, group=40, home="snd_hda_intel", kind="0x040300")
        self.add(BRIDGE, group=42, home="pcieport", kind="0x060400")

    def __enter__(self) -> Kernel:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._stop, b"x")
        self._thread.join()
        for descriptor in (*self._fifos, self._end, self._stop):
            os.close(descriptor)

    def add(self, address: str, group: int | None, home: str | None, kind: str = "0x030200") -> None:
        """Put a function on the bus, held by the driver `home`."""
        device = self.device(address)
        device.mkdir(parents=True)
        for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", kind), ("numa_node", "0"),
                           ("reset_method", "flr bus")):  # fmt: skip
            (device / name).write_text(f"{text}\n")
        (device / "config").write_bytes(CONFIG)
        self._fifo(device / "driver_override")
        self._fifo(device / "reset")
        self._home[address] = home
        if group is not None:
            members = self.root / f"sys/kernel/iommu_groups/{group}/devices"
            members.mkdir(parents=True, exist_ok=True)
            (members / address).symlink_to(device)
            (device / "iommu_group").symlink_to(members.parent)
        if home is not None:
            (device / "driver").symlink_to(self._driver(home))

    def device(self, address: str) -> Path:
        """The directory of a function."""
        return self.root / "sys/bus/pci/devices" / address

    def driver(self, address: str) -> str | None:
        """The driver that holds it."""
        link = self.device(address) / "driver"
        return link.readlink().name if link.is_symlink() else None

    def remove(self, address: str) -> None:
        """Take a function off the bus."""
        shutil.rmtree(self.device(address))

    def open_by_process(self, file: str, process: int = 4711) -> None:
        """As if a process had this file open."""
        link = self.root / f"proc/{process}/fd/3"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)

    def _driver(self, name: str) -> Path:
        return self.root / "sys/bus/pci/drivers" / name

    def _fifo(self, path: Path) -> None:
        os.mkfifo(path)
        self._fifos[os.open(path, os.O_RDWR | os.O_NONBLOCK)] = path

    def _serve(self) -> None:
        while True:
            ready, _, _ = select.select([*self._fifos, self._end], [], [])
            if self._end in ready:
                return
            # What was written earlier is read earlier: a probe follows the override that it goes by.
            for descriptor in sorted(ready, key=lambda one: self._fifos[one].name == "drivers_probe"):
                self._written(self._fifos[descriptor], os.read(descriptor, 4096).decode().strip())

    def _written(self, path: Path, text: str) -> None:
        self.writes.append((path.name, text or path.parent.name))
        if path.name == "driver_override":
            self._overrides[path.parent.name] = text
        elif path.name == "unbind":
            (self.device(text) / "driver").unlink()
        elif path.name == "drivers_probe":
            self._probe(text)
        else:
            self.resets.append(path.parent.name)

    def _probe(self, address: str) -> None:
        driver = self._overrides.get(address) or self._home[address]
        if driver is None or address in self.refused:
            return
        if driver == "vfio-pci":
            (self.root / "dev/vfio" / (self.device(address) / "iommu_group").readlink().name).touch()
        (self.device(address) / "driver").symlink_to(self._driver(driver))
