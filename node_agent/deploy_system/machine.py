"""Which machine this is: the SMBIOS UUID and the MACs of its ports, and the content of its hello."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from node_agent.clock import boot_seconds
from node_agent.deploy_system.problems import DeployEnded
from node_agent.wire.deploy_enrolment import MACS_MAX, DeployHello, MachineProof
from node_agent.wire.deploy_medium import MAC

_MAC: Final = re.compile(MAC)


def read_machine(sys: Path) -> MachineProof:
    """The machine that /sys describes. Raises DeployEnded if its firmware has no SMBIOS UUID, or it has no port."""
    macs = sorted(
        {
            address
            for port in (sys / "class/net").glob("*")
            if (port / "device").exists() and _MAC.fullmatch(address := _line(port / "address").lower())
        }
    )
    try:
        return MachineProof(smbios_uuid=_line(sys / "class/dmi/id/product_uuid").lower(), macs=macs[:MACS_MAX])
    except ValidationError as error:
        raise DeployEnded(
            "this machine cannot be identified: its firmware states no SMBIOS UUID, or no network port has a driver"
        ) from error


def read_hello(version: str, sys: Path, proc: Path) -> DeployHello:
    """What the deploy system says once it has started. Raises DeployEnded without a boot id of the kernel."""
    try:
        boot_id = UUID(_line(proc / "sys/kernel/random/boot_id"))
    except ValueError as error:
        raise DeployEnded("the kernel has no boot id") from error
    memory = re.search(r"^MemTotal:\s+([0-9]{1,12}) kB$", _text(proc / "meminfo"), re.MULTILINE)
    return DeployHello(
        agent_version=version, boot_id=boot_id, kernel=os.uname().release[:64],
        memory_bytes=None if memory is None else int(memory[1]) * 1024, uptime_seconds=round(boot_seconds(), 1),
        boot_mode="uefi" if (sys / "firmware/efi").exists() else "bios",
    )  # fmt: skip


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _line(path: Path) -> str:
    return _text(path).strip().strip("\0")
