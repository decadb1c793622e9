"""Whether a machine that runs already can be adopted, by what its BMC has reported; and what could not be seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonMapping
from orchestrator.catalogue.shapes import Shape
from orchestrator.nodes.states import NodeState
from orchestrator.placement.inventory import Sku
from orchestrator.problems import InvalidState
from orchestrator.sites.refusals import NotAdoptable

LOOK_SECONDS_MAX: Final = 900.0
"""How old a description by the BMC may be."""
ADOPTABLE: Final = frozenset({NodeState.REGISTERED, NodeState.CORDONED})
"""States in which nothing is placed on the node, and nothing leaves it."""


class Gap(StrEnum):
    """What a BMC does not show of a machine that runs, or did not."""

    DISKS = "disks"
    """Which disks it has, to be wiped: the release inspects it first."""
    OPERATING_SYSTEM = "operating_system"
    """What runs on it: the image is stated."""
    HOST_KEY = "host_key"
    """The host key and the address are stated, and not proven."""
    UEFI_VARIABLES = "uefi_variables"
    """Those before the tenancy: a wipe keeps what its inspection finds."""
    TPM = "tpm"
    FIRMWARE = "firmware"
    """The versions before the tenancy: a release compares with lists alone."""
    UUID = "uuid"
    """The BMC reports no usable UUID: that of the machine is stated."""
    SERIAL = "serial"
    NETWORK_PORT = "network_port"
    """The BMC reports no port with the MAC of the deploy system's network."""


ALWAYS: Final = (
    Gap.DISKS, Gap.OPERATING_SYSTEM, Gap.HOST_KEY, Gap.UEFI_VARIABLES, Gap.TPM, Gap.FIRMWARE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stated:
    """What the operator states of the machine. None: as its BMC, or an inspection before, has reported it."""

    smbios_uuid: UUID | None
    serial: str | None
    mac: str


@dataclass(frozen=True, slots=True)
class Look:
    """What was read at the BMC last. `looked_at` None: nothing."""

    power_state: str | None
    inventory: JsonMapping | None
    looked_at: datetime | None
    silent_because: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A locked node. `slots_out`: how many of its slots are out of service."""

    state: NodeState
    shape: str
    gpu_model: str
    slot_count: int
    slots_out: int
    has_agent: bool
    is_awaited: bool


def require_candidate(node: Candidate) -> None:
    """Return if a machine of this node can be adopted. Raises `InvalidState`, `NotAdoptable`."""
    if node.state not in ADOPTABLE:
        raise InvalidState(
            f"the node is {node.state.value}; only registered and cordoned nodes take a machine that runs already",
            state=node.state.value,
        )
    if node.has_agent:
        raise NotAdoptable.because(
            "has_agent", "an agent has enrolled for the node, and only machines behind a BMC without one are adopted"
        )
    if node.is_awaited:
        raise NotAdoptable.because(
            "awaited", "what is on the machine is unknown since a restore: berth restore nodes lists it"
        )
    if node.slot_count == 0:
        raise NotAdoptable.because("no_slots", "the node has no slot; register it with the number of its GPUs")
    if node.slots_out:
        raise NotAdoptable.because(
            "slots_out_of_service", f"{node.slots_out} slots of the node are out of service; return them first"
        )


def require_fit(node: Candidate, sku: Sku) -> None:
    """Return if the whole node is what the SKU sells. Raises `NotAdoptable`."""
    why = None
    if not sku.active:
        why = f"{sku.name} is retired"
    elif sku.shape != Shape.BAREMETAL or node.shape != Shape.BAREMETAL:
        why = f"{sku.name} has the shape {sku.shape} and the node {node.shape}; both must be baremetal"
    elif sku.gpu_model != node.gpu_model:
        why = f"{sku.name} has {sku.gpu_model} and the node {node.gpu_model}"
    elif node.slot_count not in sku.allowed_counts:
        why = (
            f"the node has {node.slot_count} GPUs; {sku.name} allows {', '.join(map(str, sorted(sku.allowed_counts)))}"
        )
    if why is not None:
        raise NotAdoptable.because("sku_does_not_fit", f"{why}; name a SKU for the whole machine")


def require_running(look: Look, now: datetime) -> None:
    """Return if the BMC has just described a machine that is on. Raises `NotAdoptable`."""
    if look.looked_at is None or look.inventory is None:
        raise NotAdoptable.because("not_looked", "its BMC was not asked yet: berth node bmc look, then adopt it")
    if look.silent_because is not None:
        raise NotAdoptable.because(
            "bmc_silent", f"its BMC does not answer ({look.silent_because}); berth node bmc show"
        )
    age = (now - look.looked_at).total_seconds()
    if age > LOOK_SECONDS_MAX:
        raise NotAdoptable.because(
            "look_outdated",
            f"its BMC was asked {age:,.0f} s ago, and {LOOK_SECONDS_MAX:,.0f} s are allowed: berth node bmc look",
        )
    if look.power_state != "On":
        raise NotAdoptable.because(
            "machine_off", f"the power of the machine is {look.power_state}; only a machine that is on is adopted"
        )


def machine_uuid(look: Look, stated: Stated, inspected: UUID | None) -> UUID:
    """The SMBIOS UUID of the machine: stated, inspected and reported ones must be the same. Raises `NotAdoptable`."""
    reported = _uuid_of(look)
    known = {
        name: value
        for name, value in (("stated", stated.smbios_uuid), ("inspected", inspected), ("reported by the BMC", reported))
        if value is not None
    }
    if len(set(known.values())) > 1:
        listed = ", ".join(f"{value} {name}" for name, value in known.items())
        raise NotAdoptable.because("other_machine", f"the SMBIOS UUID is not that of one machine: {listed}")
    if not known:
        raise NotAdoptable.because("machine_unknown", "its BMC reports no UUID: give the SMBIOS UUID of the machine")
    serial = str((look.inventory or {}).get("serial") or "")
    if stated.serial is not None and stated.serial != serial:
        raise NotAdoptable.because("other_machine", f"the BMC reports the serial {serial!r} and not {stated.serial!r}")
    return next(iter(known.values()))


def _uuid_of(look: Look) -> UUID | None:
    try:
        return UUID(str((look.inventory or {}).get("uuid")))
    except ValueError:
        return None


def gaps_of(look: Look, stated: Stated) -> list[Gap]:
    """What was not seen of the machine, in a fixed order."""
    inventory = look.inventory or {}
    ports = {str(nic.get("mac", "")).lower() for nic in inventory.get("nics") or [] if isinstance(nic, dict)}
    missing = (
        (Gap.UUID, _uuid_of(look) is None),
        (Gap.SERIAL, not inventory.get("serial")),
        (Gap.NETWORK_PORT, stated.mac not in ports),
    )
    return [*ALWAYS, *(gap for gap, is_missing in missing if is_missing)]
