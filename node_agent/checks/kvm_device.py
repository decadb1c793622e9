"""Checks the users of QEMU: libvirt's own, which probes QEMU, and those of the guests; and what they may do with /dev/kvm."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from node_agent.checks.finding import Code, Finding
from node_agent.checks.libvirt_settings import QEMU, read_libvirt_settings
from node_agent.discovery.reading import Tree

DEVICE = "dev/kvm"
# Of Debian and Ubuntu, of Fedora and RHEL: what qemu.conf does not name is compiled in.
DEFAULT_USERS = ("libvirt-qemu", "qemu")
TRIAL_SECONDS_MAX = 10.0
_USER, _DEVICE = "qemu user", "kvm device"


@dataclass(frozen=True)
class User:
    """A user that QEMU runs as. `groups` has its first group too."""

    id: int
    group: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Access:
    """Whether users may open the device for reading and writing; None: it was not tried. `exists`: whether it is there."""

    exists: bool
    libvirt: bool | None = None
    guests: bool | None = None


def check_qemu_users(tree: Tree, root: Path, guest_ids: Sequence[int], boots: Callable[[], bool]) -> list[Finding]:
    """Check the users and what they may do. `boots`: whether KVM runs a guest that root starts."""
    settings = read_libvirt_settings(tree, QEMU)
    if settings is None:
        return [Finding(_USER, f"/{QEMU} cannot be read", Code.LIBVIRT_SETTINGS_UNREADABLE, "run the check as root")]
    user, wanted = libvirt_user(settings)
    guests = [User(number, number, (number,)) for number in guest_ids]
    device = root / DEVICE
    access = try_access(device, user, guests) if device.is_char_device() else Access(exists=False)
    return [judge_user(user, wanted), judge_access(access, boots)]


def libvirt_user(settings: Mapping[str, str]) -> tuple[User | None, str]:
    """The user that libvirt runs QEMU as, or None if there is none; and the names that were looked for."""
    names = (settings["user"],) if settings.get("user") else DEFAULT_USERS
    for name in names:
        number = name.removeprefix("+")
        account = _account(name)
        if account is not None:
            group = _group(settings.get("group", ""), account.pw_gid)
            return User(account.pw_uid, group, tuple(os.getgrouplist(account.pw_name, group))), name
        if number.isdecimal():  # libvirt takes a number that is no account
            group = _group(settings.get("group", ""), int(number))
            return User(int(number), group, (group,)), name
    return None, " or ".join(names)


def judge_user(user: User | None, wanted: str) -> Finding:
    """The finding for the user of QEMU."""
    if user is None:
        remedy = f"install libvirt-daemon-system, which makes it, or name the user in /{QEMU}"
        return Finding(_USER, f"there is no user {wanted}", Code.QEMU_USER_ABSENT, remedy)
    return Finding(_USER, f"libvirt runs QEMU as {wanted}")


def judge_access(access: Access, boots: Callable[[], bool]) -> Finding:
    """The finding for the device. A guest of KVM that may not open it does not start; one by emulation does not need it."""
    if not access.exists:
        return Finding(_DEVICE, "there is no /dev/kvm: guests run by emulation", Code.KVM_ABSENT)
    if access.guests is None:
        found = "it cannot be tried as QEMU's users"
        return Finding(_DEVICE, found, Code.KVM_ACCESS_UNKNOWN, "run the check as root")
    remedy = 'chmod 0666 /dev/kvm, and for each boot a file of /etc/udev/rules.d with KERNEL=="kvm", MODE="0666"'
    if not access.guests and boots():
        found = "KVM runs guests, and the users of the guests cannot open /dev/kvm: no guest would start"
        return Finding(_DEVICE, found, Code.KVM_CLOSED_TO_GUESTS, remedy)
    if access.libvirt is False:
        found = "QEMU's user cannot open /dev/kvm: libvirt probes QEMU anew at each call, which takes 4 to 8 s"
        return Finding(_DEVICE, found, Code.KVM_CLOSED_TO_LIBVIRT, remedy)
    return Finding(_DEVICE, "QEMU's users can open /dev/kvm")


def try_access(device: Path, user: User | None, guests: Sequence[User]) -> Access:
    """Try the device as each user, access control lists and groups included."""
    may = [_may_open(device, guest) for guest in guests]
    return Access(True, None if user is None else _may_open(device, user), None if None in may else all(may))


def _may_open(device: Path, user: User) -> bool | None:
    command = ["test", "-r", str(device), "-a", "-w", str(device)]
    try:
        done = subprocess.run(
            command, user=user.id, group=user.group, extra_groups=user.groups, cwd="/", check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TRIAL_SECONDS_MAX,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.returncode == 0


def _account(name: str) -> pwd.struct_passwd | None:
    number = name.removeprefix("+")
    try:
        return pwd.getpwuid(int(number)) if number.isdecimal() else pwd.getpwnam(name)
    except (KeyError, OverflowError):
        return None


def _group(name: str, default: int) -> int:
    number = name.removeprefix("+")
    try:
        return int(number) if number.isdecimal() else grp.getgrnam(name).gr_gid if name else default
    except KeyError:
        return default
