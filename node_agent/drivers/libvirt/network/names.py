"""Names of the interfaces of tenant networks. The rules match them by prefix, so they hold before an interface exists."""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

BRIDGE_PREFIX: Final = "berthb"
TAP_PREFIX: Final = "bertht"
UPLINK_PREFIX: Final = "berthv"
ACCESS_PREFIX: Final = "bertha"
TRUNK_BRIDGE: Final = "berth-trunk"
"""The bridge of the access ports and the interface at which their VLANs are tagged."""
INTERFACE_NAME_MAX: Final = 15
"""Characters of a name (IFNAMSIZ without its terminator). libvirt takes over names that begin with `vnet`."""


def bridge_name(vni: int) -> str:
    """The bridge of a network; a VNI has at most eight digits."""
    return f"{BRIDGE_PREFIX}{vni}"


def uplink_name(vni: int) -> str:
    """The port of a network's bridge that leads to other nodes."""
    return f"{UPLINK_PREFIX}{vni}"


def access_name(vni: int) -> str:
    """The other end of a network's uplink with VLANs: an untagged port of the trunk's bridge."""
    return f"{ACCESS_PREFIX}{vni}"


def tap_name(allocation_id: UUID) -> str:
    """The tap of a guest; which allocation a tap belongs to is in its alias."""
    digest = hashlib.sha256(allocation_id.bytes).hexdigest()
    return f"{TAP_PREFIX}{digest}"[:INTERFACE_NAME_MAX]
