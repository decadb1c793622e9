"""The firmware version that the driver of a network port states: ETHTOOL_GDRVINFO (linux/ethtool.h). Sends nothing."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Final

_SIOCETHTOOL: Final = 0x8946
_GDRVINFO: Final = 3
DRVINFO: Final = struct.Struct("=I32s32s32s32s32s12s5I")
"""cmd, driver, version, fw_version, bus_info, erom_version, reserved2, and five counts."""
_NOT_STATED: Final = frozenset({"", "N/A", "n/a"})


def firmware_of(interface: str) -> str | None:
    """The version; None if the driver states none, or there is no such port."""
    answer = array.array("B", DRVINFO.pack(_GDRVINFO, b"", b"", b"", b"", b"", b"", 0, 0, 0, 0, 0))
    request = struct.pack("16sP16x", interface.encode()[:15], answer.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
            fcntl.ioctl(endpoint, _SIOCETHTOOL, request)
    except OSError:
        return None
    return stated(answer.tobytes())


def stated(answer: bytes) -> str | None:
    """The version in what the kernel wrote."""
    text: bytes = DRVINFO.unpack(answer)[3]
    version = text.partition(b"\0")[0].decode("ascii", errors="replace").strip()
    return None if version in _NOT_STATED else version
