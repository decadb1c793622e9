"""The outside view of a node with guests of QEMU: /proc, files, a real SSH client, and the disk as its key opens it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path
from uuid import UUID

import asyncssh

from node_agent.protocol import Connection
from tests.drivers.processes_seen import processes_of_allocations, traces_of
from tests.drivers.sandbox_probe import SandboxProbe

PLANTED_MIB = 300
"""Where on the disk a tenant's marker is written: behind the image."""


class LibvirtProbe(SandboxProbe):
    """One node's directory, and the tenant that logs in. Files and leases are where the sandbox has them."""

    def processes(self) -> dict[UUID, set[int]]:
        found = processes_of_allocations(self._directory / "allocations")
        # virtlogd, which all guests share, has their consoles open.
        guests = {held: {pid for pid in pids if _name(pid) != "virtlogd"} for held, pids in found.items()}
        return {held: pids for held, pids in guests.items() if pids}

    def there(self) -> set[UUID]:
        return super().there() | self._domains()

    def snapshot(self) -> object:
        return super().snapshot(), self._domains()

    async def answers(self, connection: Connection, allocation_id: UUID) -> bool:
        try:
            said = await self._tenant.run(connection, "sed -n 's/^instance-id: //p' /seed/meta-data")
        except (OSError, asyncssh.Error):
            return False
        return said.strip() == str(allocation_id)

    async def plant(self, connection: Connection, marker: str) -> None:
        write = f"printf %s {marker} | dd of=/dev/vda bs=1M seek={PLANTED_MIB} conv=notrunc,fsync"
        daemon = f"setsid sh -c 'sleep 1000; echo {marker}' >/dev/null 2>&1 </dev/null &"
        await self._tenant.run(connection, f"{write}; {daemon}")

    async def remains(self, connection: Connection, marker: str) -> bool:
        read = f"dd if=/dev/vda bs=1M skip={PLANTED_MIB} count=1 2>/dev/null | head -c {len(marker)}"
        try:
            return marker in await self._tenant.run(connection, read)
        except (OSError, asyncssh.Error):
            return False

    def traces(self, marker: str) -> list[str]:
        opened = [
            f"{disk}, decrypted"
            for disk in self._directory.glob("**/disk.qcow2")
            if marker in planted(disk, disk.with_name("disk.key"))
        ]
        return [*traces_of(marker, self._directory), *opened]

    def _domains(self) -> set[UUID]:
        """Allocations of this node among libvirt's domains: those whose disk is below the directory."""
        defined = Path("/etc/libvirt/qemu").glob("berth-*.xml")
        texts = {path.stem.removeprefix("berth-"): _text(path) for path in defined}
        return {UUID(name) for name, text in texts.items() if str(self._directory) in text}


def planted(disk: Path, key: Path) -> str:
    """What the disk holds at the marker's place, read with its key."""
    options = f"driver=qcow2,encrypt.format=luks,encrypt.key-secret=key,file.driver=file,file.filename={disk}"
    command = [
        "qemu-io", "-r", "-U", "--object", f"secret,id=key,file={key}", "--image-opts", "-c",
        f"read -v {PLANTED_MIB}M 512", options,
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    # Lines of an address, 16 bytes in hexadecimal, and the same as text.
    octets = re.findall(r"^[0-9a-f]{8,}:  ((?:[0-9a-f]{2} ){16})", shown, re.MULTILINE)
    return bytes.fromhex("".join(octets)).decode(errors="replace")


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""
