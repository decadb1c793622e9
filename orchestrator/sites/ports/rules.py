"""Where the ports of a machine are, and what the inspection of the machine says of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from node_agent.wire.deploy_tasks import LldpNeighbour
from node_agent.wire.switches import PortFound

QUARANTINE_SECONDS: Final = 600
QUARANTINE_SECONDS_MAX: Final = 604_800


class Place(StrEnum):
    """Which segment the ports of a machine carry. `shut`: none."""

    PROVISIONING = "provisioning"
    TENANT = "tenant"
    SHUT = "shut"


class Verb(StrEnum):
    """What an operator requests of the ports. `tenant` puts a tenant's machine back where it belongs, `check` moves nothing."""

    PROVISIONING = "provisioning"
    TENANT = "tenant"
    SHUT = "shut"
    CHECK = "check"


@dataclass(frozen=True, slots=True)
class Port:
    """A network port of a machine, by its MAC, and the port of a switch that it is connected to."""

    switch: str
    port: str
    mac: str


def isolation_of(found: Sequence[PortFound]) -> str:
    """What separates the machine: the weakest of its ports."""
    return "vlan" if found and all(one.isolation == "vlan" for one in found) else "none"


def agrees(port: Port, neighbours: Sequence[LldpNeighbour] | None) -> bool | None:
    """Whether the switch has announced itself at this port as the operator has set it; None: the inspection heard none there."""
    heard = [one for one in neighbours or [] if one.mac == port.mac]
    if not heard:
        return None
    return any(one.port_id == port.port and one.system_name in (None, port.switch) for one in heard)
