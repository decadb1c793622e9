"""Ports of machines at switches: what an agent of a site is to have them carry, and what it has read back."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import FailFast, Field

from node_agent.wire.fields import Exact, Truth, Whole, Wire

PORTS_MAX: Final = 8
"""Ports of one machine."""
VLAN_MAX: Final = 4_094
SEGMENTS_FOUND_MAX: Final = 64
"""Segments of a port in a report; one that carries more is cut."""
SWITCH_PATTERN: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
PORT_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,63}$"

SwitchName = Annotated[str, Field(pattern=SWITCH_PATTERN)]
PortName = Annotated[str, Field(pattern=PORT_PATTERN)]
Isolation = Literal["none", "vlan"]


class SegmentKind(StrEnum):
    """What separates a segment from others. `pkey`: an InfiniBand partition; `dpu`: rules of the machine's DPU. No driver has
    these two."""

    VLAN = "vlan"
    PKEY = "pkey"
    DPU = "dpu"


class Segment(Exact):
    """The network that a port carries, and no other: the VLAN of this number, untagged."""

    kind: SegmentKind = SegmentKind.VLAN
    number: Annotated[Whole, Field(ge=1, le=65_535)]


class SwitchPort(Exact):
    """A port, by the name of its switch in the agent's list of switches. `isolation` vlan: its driver must read it back."""

    switch: SwitchName
    port: PortName
    isolation: Isolation = Field("none", exclude_if=lambda it: it == "none")


class PortOrder(Exact):
    """The ports of a machine, and the segment that each carries; without one they are shut.

    `move` false: the ports are compared with it, and not moved. `while_off`: the machine is off before and after the move, or the
    ports are shut.
    """

    ports: Annotated[list[SwitchPort], Field(min_length=1, max_length=PORTS_MAX), FailFast()]
    segment: Segment | None = None
    move: Truth = True
    while_off: Truth = Field(False, exclude_if=lambda it: not it)


class PortFound(Wire):
    """A port as it was read back. `isolation` none: its driver moves nothing, and the rest is not known."""

    switch: SwitchName
    port: PortName
    driver: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    isolation: Isolation
    segments: Annotated[list[Whole], Field(max_length=SEGMENTS_FOUND_MAX), FailFast()] = Field(default_factory=list)
    is_shut: Truth = False
