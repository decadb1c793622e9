"""Health of disks: what the kernel knows of each, and what `smartctl` says where it is installed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.discovery.children import NoAnswer, run_bounded
from node_agent.discovery.disks import disks
from node_agent.discovery.reading import Gaps, Tree, printable
from node_agent.wire.health import DiskHealth
from node_agent.wire.topology import NAME_MAX

SMARTCTL_SECONDS_MAX = 20.0
SMARTCTL_BYTES_MAX = 256 * 1024
_AT_ONCE_MAX = 8
_REALLOCATED, _PENDING = 5, 197  # ids of ATA attributes
_MILLIDEGREES_MAX = 1_000_000


def disk_states(tree: Tree) -> list[DiskHealth] | None:
    """The disks that discovery lists, with what sysfs says of their health; None if they cannot be listed."""
    found = disks(tree)
    if found is None:
        return None
    return [_by_sysfs(tree, disk.name) for disk in found]


def _by_sysfs(tree: Tree, name: str) -> DiskHealth:
    device = f"sys/block/{name}/device"
    monitors = [entry for entry in tree.names(device) or [] if entry.startswith("hwmon") and entry != "hwmon"]
    millidegrees = tree.number(f"{device}/{monitors[0]}/temp1_input", _MILLIDEGREES_MAX) if monitors else None
    return DiskHealth(
        name=name,
        source="sysfs",
        state=tree.line(f"{device}/state", NAME_MAX),
        temperature_celsius=None if millidegrees is None else millidegrees // 1000,
    )


async def with_smart(found: list[DiskHealth], environment: Mapping[str, str], gaps: Gaps) -> list[DiskHealth]:
    """The same disks with what SMART says of them, if `smartctl` is installed."""
    command = shutil.which("smartctl", path=environment.get("PATH"))
    if command is None:
        return found
    places = asyncio.Semaphore(_AT_ONCE_MAX)

    async def asked(disk: DiskHealth) -> DiskHealth:
        async with places:
            return await _asked(command, disk, environment, gaps)

    return list(await asyncio.gather(*(asked(disk) for disk in found)))


async def _asked(command: str, disk: DiskHealth, environment: Mapping[str, str], gaps: Gaps) -> DiskHealth:
    arguments = (command, "--json", "--health", "--attributes", f"/dev/{disk.name}")
    try:
        # Its exit code is a mask that also says that a disk fails; the output has the same.
        _, answer = await run_bounded(arguments, environment, SMARTCTL_SECONDS_MAX, SMARTCTL_BYTES_MAX)
        said = json.loads(answer)
        passed = _at(said, "smart_status", "passed")
        if not isinstance(passed, bool):
            gaps.add(f"smart {disk.name}", _why_not(said))
            return disk
        found = disk.model_dump() | _found(said) | {"source": "smartctl", "passed": passed}
        return DiskHealth.model_validate(found)
    except NoAnswer as error:
        gaps.add(f"smart {disk.name}", str(error))
    except (ValueError, RecursionError, ValidationError):
        gaps.add(f"smart {disk.name}", "the answer of smartctl is not what it documents")
    return disk


def _found(said: Any) -> JsonObject:
    nvme = "nvme_smart_health_information_log"
    found = {
        "temperature_celsius": _at(said, "temperature", "current"),
        "critical_warning": _at(said, nvme, "critical_warning"),
        "percentage_used": _at(said, nvme, "percentage_used"),
        "media_errors": _at(said, nvme, "media_errors"),
        "reallocated_sectors": _attribute(said, _REALLOCATED),
        "pending_sectors": _attribute(said, _PENDING),
    }
    return {name: value for name, value in found.items() if value is not None}


def _attribute(said: Any, wanted: int) -> Any:
    table = _at(said, "ata_smart_attributes", "table")
    for row in table if isinstance(table, list) else ():
        if _at(row, "id") == wanted:
            return _at(row, "raw", "value")
    return None


def _at(said: Any, *path: str) -> Any:
    for name in path:
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _why_not(said: Any) -> str:
    messages = _at(said, "smartctl", "messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    text = _at(first, "string")
    return printable(text) if isinstance(text, str) and text else "smartctl has no verdict"
