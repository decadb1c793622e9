"""Which versions of firmware a release objects to: those that changed during the tenancy, or are not on the list. Pure.

Nothing is believed that was not read: a source that reported nothing has changed nothing. A firmware that states another version
than it has is not detected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from node_agent.wire.deploy_tasks import FirmwareVersion, MetalInspectReport
from node_agent.wire.sites import BmcInventory
from node_agent.wire.topology import TEXT_MAX

COMPONENTS_MAX: Final = 128
VERSIONS_MAX: Final = 32
OBJECTIONS_MAX: Final = 16
BIOS: Final = "bios"
BMC: Final = "bmc"
INVENTORY: Final = "inventory"
ALWAYS_READ: Final = frozenset({BIOS, BMC})
"""Components that every machine has: a list that names one is not met by a machine that does not state it."""


class Objection(StrEnum):
    """Why a version is objected to."""

    CHANGED = "firmware_changed"
    NOT_LISTED = "firmware_not_listed"
    NOT_READ = "firmware_not_read"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted versions of a component of a model of machines; `model` None: of parts of every model."""

    component: str
    model: str | None
    versions: frozenset[str]

    def names(self, found: FirmwareVersion) -> bool:
        """Whether it says which versions this part may have."""
        return self.component == found.component and self.model in (None, found.model)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a machine at one time; None: the source reported nothing."""

    machine: Sequence[FirmwareVersion] | None
    bmc: Sequence[FirmwareVersion] | None

    def all(self) -> list[FirmwareVersion]:
        """What was read, by either source."""
        return [*(self.machine or ()), *(self.bmc or ())]


def of_bmc(inventory: BmcInventory) -> list[FirmwareVersion]:
    """The versions that a BMC names: its own, and its firmware inventory unless that was cut. Empty ones are left out."""
    found = []
    manager = inventory.manager
    if manager is not None:
        found.append(_version(BMC, manager.id or BMC, manager.model, manager.firmware_version))
    if not inventory.cut:
        found += [_version(INVENTORY, one.name or one.id, one.name, one.version) for one in inventory.firmware]
    return [one for one in found if one is not None]


def _version(component: str, unit: str, model: str, version: str) -> FirmwareVersion | None:
    unit, model, version = (_plain(text) for text in (unit, model, version))
    if not unit or not version:
        return None
    return FirmwareVersion(component=component, unit=unit, model=model or None, version=version)


def _plain(text: str) -> str:
    return "".join(one if " " <= one <= "~" else "?" for one in text.strip())[:TEXT_MAX].strip()


def of_report(report: MetalInspectReport) -> list[FirmwareVersion]:
    """The BIOS of an inspection by a deploy system of an earlier version, which reports no other firmware."""
    version = report.topology.firmware.bios_version
    if version is None:
        return []
    vendor = report.topology.firmware.bios_vendor
    return [FirmwareVersion(component=BIOS, unit="smbios", model=vendor, version=version)]


def objections(before: Reading, after: Reading, accepted: Sequence[Accepted] | None) -> list[tuple[Objection, str]]:
    """What is wrong, with the part and what was found; at most `OBJECTIONS_MAX` and how many more there are.

    `accepted` None: there is no list for the model, and only changes count.
    """
    found = [
        *((Objection.CHANGED, text) for text in _changes(before.machine, after.machine)),
        *((Objection.CHANGED, text) for text in _changes(_read_again(before.bmc, after.bmc), after.bmc)),
        *(_unlisted(after.all(), accepted) if accepted is not None else ()),
    ]
    if len(found) <= OBJECTIONS_MAX:
        return found
    kept = found[: OBJECTIONS_MAX - 1]
    return [*kept, (found[OBJECTIONS_MAX - 1][0], f"and {len(found) - len(kept)} more")]


def _read_again(
    before: Sequence[FirmwareVersion] | None, after: Sequence[FirmwareVersion] | None
) -> list[FirmwareVersion] | None:
    """Without the components that the BMC left out this time: its answers can fail apart (`node_agent/redfish`)."""
    given = {one.component for one in after or ()}
    return None if before is None else [one for one in before if one.component in given]


def _changes(before: Sequence[FirmwareVersion] | None, after: Sequence[FirmwareVersion] | None) -> list[str]:
    """Parts whose version is another one, or is not stated any more. A part that was not known before is no change."""
    if before is None or after is None:
        return []
    was, now = _by_part(before), _by_part(after)
    return [
        f"{component} {unit}: {_shown(versions)} before, {_shown(now.get((component, unit), ()))} now"
        for (component, unit), versions in was.items()
        if now.get((component, unit)) != versions
    ]


def _by_part(found: Iterable[FirmwareVersion]) -> Mapping[tuple[str, str], frozenset[str]]:
    """The versions of each part: entries of a BMC's inventory with one name are one part."""
    parts: dict[tuple[str, str], frozenset[str]] = {}
    for one in found:
        key = (one.component, one.unit)
        parts[key] = parts.get(key, frozenset()) | {one.version}
    return parts


def _shown(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions)) or "not stated"


def _unlisted(found: Sequence[FirmwareVersion], accepted: Sequence[Accepted]) -> list[tuple[Objection, str]]:
    objected = []
    for one in found:
        naming = [entry for entry in accepted if entry.names(one)]
        if naming and not any(one.version in entry.versions for entry in naming):
            part = f"{one.component} {one.unit}" + ("" if one.model is None else f" ({one.model})")
            objected.append((Objection.NOT_LISTED, f"{part}: {one.version}"))
    read = {one.component for one in found}
    missing = {entry.component for entry in accepted if entry.component in ALWAYS_READ and entry.model is None} - read
    return objected + [(Objection.NOT_READ, f"{component}: no version was read") for component in sorted(missing)]
