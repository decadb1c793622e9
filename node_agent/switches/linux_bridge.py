"""The driver `linux_bridge`: a Linux bridge as a switch, for labs on one host and for tests.

With `bridge`, segments are VLANs of one bridge that filters them. With `bridge_prefix`, each segment is a bridge, called by the
prefix and the number: for kernels without VLAN filtering. The fence of the newest task is the port's alias.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from berth.process.json_objects import JsonObject
from node_agent.switches.contract import NotIsolating, PortState, PortUnknown, SegmentUnknown, Switch, SwitchRefused
from node_agent.switches.iproute import read_json, run
from node_agent.wire.switches import VLAN_MAX, Isolation, Segment, SegmentKind

ALIAS: Final = "berth fence "
_ALIAS: Final = re.compile(rf"^{ALIAS}([0-9]{{1,18}})$")


@dataclass(frozen=True)
class LinuxBridge(Switch):
    """`namespace`: the named network namespace of the bridge; None: the agent's."""

    bridge: str | None
    bridge_prefix: str | None
    namespace: str | None

    driver: ClassVar[str] = "linux_bridge"
    isolation: ClassVar[Isolation] = "vlan"
    kinds: ClassVar[frozenset[SegmentKind]] = frozenset({SegmentKind.VLAN})

    async def read(self, port: str) -> PortState:
        """The port with its VLANs, or the one of its bridge. Raises SwitchProblem."""
        link = await self._link(port)
        fence = _ALIAS.match(link.get("ifalias", ""))
        carried, untagged = await self._carried(port, link)
        is_shut = "UP" not in link.get("flags", [])
        return PortState(carried, untagged, is_shut, int(fence.group(1)) if fence else None)

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        """Shut the port, change what it carries, and open it again: no frame passes in between. Raises SwitchProblem.

        A port that carries the segment has its fence written alone: its link stays up.
        """
        link = await self._link(port)
        if self.bridge_prefix is not None and segment is not None:
            await self._require_bridge(f"{self.bridge_prefix}{segment.number}", segment)
        await self._ip("link", "set", "dev", port, "alias", f"{ALIAS}{fence}")
        if (await self.read(port)).carries(segment):
            return
        await self._ip("link", "set", "dev", port, "down")
        if self.bridge_prefix is None:
            await self._filter(port, link, segment)
        elif segment is None:
            await self._ip("link", "set", "dev", port, "nomaster")
        else:
            await self._ip("link", "set", "dev", port, "master", f"{self.bridge_prefix}{segment.number}")
        if segment is not None:
            await self._ip("link", "set", "dev", port, "up")

    async def _carried(self, port: str, link: JsonObject) -> tuple[frozenset[int], int | None]:
        master = link.get("master")
        if self.bridge_prefix is not None:
            if master is None and _ALIAS.match(link.get("ifalias", "")):
                return frozenset(), None
            if master is None:
                raise PortUnknown(f"{port} is in no bridge; put it into one of the prefix {self.bridge_prefix} once")
            number = master.removeprefix(self.bridge_prefix)
            if number == master or not number.isdecimal() or not 1 <= int(number) <= VLAN_MAX:
                raise PortUnknown(f"{port} is in {master}, which is no segment of the prefix {self.bridge_prefix}")
            return frozenset({int(number)}), int(number)
        if master != self.bridge:
            raise PortUnknown(f"{port} is no port of the bridge {self.bridge}")
        await self._require_filtering()
        vlans = [
            (vlan, entry)
            for of_port in await read_json("bridge", self.namespace, ["vlan", "show", "dev", port])
            for entry in of_port.get("vlans", [])
            for vlan in range(entry["vlan"], entry.get("vlanEnd", entry["vlan"]) + 1)
        ]
        untagged = [vlan for vlan, entry in vlans if {"PVID", "Egress Untagged"} <= set(entry.get("flags", []))]
        return frozenset(vlan for vlan, _ in vlans), untagged[0] if untagged else None

    async def _filter(self, port: str, link: JsonObject, segment: Segment | None) -> None:
        carried, _ = await self._carried(port, link)
        for vlan in sorted(carried):
            await self._bridge("vlan", "del", "dev", port, "vid", str(vlan))
        if segment is not None:
            await self._bridge("vlan", "add", "dev", port, "vid", str(segment.number), "pvid", "untagged")

    async def _require_filtering(self) -> None:
        assert self.bridge is not None, "the mode has one bridge"
        found = (await self._show(self.bridge)).get("linkinfo", {}).get("info_data", {})
        if found.get("vlan_filtering") != 1:
            raise NotIsolating(f"the bridge {self.bridge} does not filter VLANs: every port reaches every other one")

    async def _require_bridge(self, name: str, segment: Segment) -> None:
        try:
            kind = (await self._show(name)).get("linkinfo", {}).get("info_kind")
        except PortUnknown:
            kind = None
        if kind != "bridge":
            raise SegmentUnknown(f"segment {segment.number} has no bridge {name}")

    async def _link(self, port: str) -> JsonObject:
        return await self._show(port)

    async def _show(self, name: str) -> JsonObject:
        try:
            found = await read_json("ip", self.namespace, ["-d", "link", "show", "dev", name])
        except SwitchRefused as refused:
            if "does not exist" in refused.detail:
                raise PortUnknown(f"there is no interface {name}") from refused
            raise
        if len(found) != 1:
            raise PortUnknown(f"there is no interface {name}")
        return found[0]

    async def _ip(self, *arguments: str) -> None:
        await run("ip", self.namespace, arguments)

    async def _bridge(self, *arguments: str) -> None:
        await run("bridge", self.namespace, arguments)
