"""The rights that systemd gives the agent by deploy/berth-agent.service and its drop-in, taken by a test's process.

The process is started as root and gives everything else up: where only root reaches Python and the code, no program could be
started as the service's user.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "berth-agent.service"
DROP_IN = DEPLOY / "berth-agent-libvirt.conf"
LVM_DROP_IN = DEPLOY / "guests" / "berth-agent-lvm.conf"
# linux/capability.h
NUMBERS = {
    "CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_DAC_READ_SEARCH": 2, "CAP_FOWNER": 3, "CAP_KILL": 5, "CAP_SETGID": 6,
    "CAP_SETUID": 7, "CAP_NET_BIND_SERVICE": 10, "CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27,
}  # fmt: skip
_LAST = 40
_VERSION_3 = 0x20080522
_CAPBSET_DROP, _KEEPCAPS, _NO_NEW_PRIVILEGES, _AMBIENT, _AMBIENT_RAISE = 24, 8, 38, 47, 2


def setting(name: str, *files: Path) -> list[str]:
    """The value of a setting in the last file that has it, as words."""
    found = [
        line.partition("=")[2].split()
        for file in files
        for line in file.read_text().splitlines()
        if line.startswith(f"{name}=")
    ]
    return found[-1] if found else []


def give_up(user_id: int, group_ids: list[int], kept: Iterable[str]) -> None:
    """Become this user with these capabilities, as a service with the same bounding and ambient set."""
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = {NUMBERS[name] for name in kept}

    def prctl(*arguments: int) -> None:
        if libc.prctl(*map(ctypes.c_ulong, (*arguments, 0, 0, 0, 0)[:5])) != 0:
            raise OSError(ctypes.get_errno(), f"prctl{arguments}")

    for number in range(_LAST + 1):
        if number not in numbers:
            prctl(_CAPBSET_DROP, number)
    prctl(_KEEPCAPS, 1)
    os.setgroups(group_ids)
    os.setresgid(group_ids[0], group_ids[0], group_ids[0])
    os.setresuid(user_id, user_id, user_id)
    mask = sum(1 << number for number in numbers)
    header = ctypes.create_string_buffer(struct.pack("Ii", _VERSION_3, 0))
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = ctypes.create_string_buffer(struct.pack("6I", low, low, low, high, high, high))
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    for number in numbers:
        prctl(_AMBIENT, _AMBIENT_RAISE, number)
    prctl(_NO_NEW_PRIVILEGES, 1)
