"""The firmware's variables, which outlive every wiped disk: their digests, and removal of those that inspection had not found."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_agent.deploy_system.effects.contract import Host
from node_agent.wire.deploy_tasks import UEFI_VARIABLES_MAX, UefiVariable

GLOBAL: Final = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
NON_VOLATILE: Final = 1
_NAME: Final = re.compile(r"^[\x20-\x7e]{1,122}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_FS_IOC_SETFLAGS: Final = 0x40086602
_VALUE_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True)
class Compared:
    """What became of the variables: names removed, names that could not be, and known names with another value."""

    removed: list[str]
    remaining: list[str]
    changed: list[str]
    nameless: int
    """Variables left that have no printable name or cannot be read."""


def variables(host: Host) -> list[UefiVariable] | None:
    """Every variable that outlives a power cycle, with its digest, sorted by name, unbounded; None without UEFI."""
    if not host.efi_variables.is_dir():
        return None
    return [UefiVariable(name=name, sha256=digest) for name, digest in sorted(_kept(host).items())]


def unreadable(host: Host) -> list[str]:
    """Names that no digest can be given for: outside printable ASCII, or not readable."""
    if not host.efi_variables.is_dir():
        return []
    readable = _values(host)
    return sorted(path.name for path in host.efi_variables.iterdir() if path.name not in readable)


def compare_and_remove(host: Host, inspected: Sequence[UefiVariable]) -> Compared:
    """Remove what inspection had not found; the firmware's new ones look like a tenant's. Then read all again.

    Where inspection listed as many as can be listed, names after its last one are unknown: they stay, and count as remaining.
    """
    known = {variable.name: variable.sha256 for variable in inspected}
    last = max(known) if len(known) == UEFI_VARIABLES_MAX else None
    before = _kept(host)
    nameless = unreadable(host)
    for name in [name for name in before if name not in known and (last is None or name < last)] + nameless:
        _remove(host.efi_variables / name)
    after = _kept(host)
    return Compared(
        removed=sorted(name for name in before if name not in known and name not in after),
        remaining=sorted(name for name in after if name not in known),
        changed=sorted(name for name, digest in after.items() if known.get(name, digest) != digest),
        nameless=len(unreadable(host)),
    )


def write(host: Host, name: str, value: bytes) -> None:
    """Write a variable of the global name space, non-volatile, seen at boot and runtime, and read it back. Raises OSError."""
    path = host.efi_variables / f"{name}-{GLOBAL}"
    content = struct.pack("<I", 7) + value
    _make_mutable(path)
    # efivarfs takes a variable as one write.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if os.write(file, content) != len(content):
            raise OSError(5, f"{name} was written in part")
        with suppress(OSError):  # for a regular file; efivarfs has the new size already
            os.ftruncate(file, len(content))
    finally:
        os.close(file)
    if path.read_bytes() != content:
        raise OSError(5, f"{name} does not have the value that was written")


def read(host: Host, name: str) -> bytes | None:
    """The value of a variable of the global name space without its attributes; None if there is none."""
    try:
        return (host.efi_variables / f"{name}-{GLOBAL}").read_bytes()[4:]
    except OSError:
        return None


def _kept(host: Host) -> dict[str, str]:
    """The digest of each variable that outlives a power cycle."""
    values = _values(host).items()
    return {name: hashlib.sha256(value).hexdigest() for name, value in values if value[0] & NON_VOLATILE}


def _values(host: Host) -> dict[str, bytes]:
    """Attributes and value of each variable that can be read."""
    found: dict[str, bytes] = {}
    if not host.efi_variables.is_dir():
        return found
    for name in (path.name for path in host.efi_variables.iterdir()):
        if not _NAME.match(name):
            continue
        try:
            value = (host.efi_variables / name).read_bytes()
        except OSError:
            continue
        if 4 <= len(value) <= _VALUE_BYTES_MAX:
            found[name] = value
    return found


def _remove(path: Path) -> None:
    _make_mutable(path)
    try:
        path.unlink()
    except OSError:
        pass  # seen when the variables are read again


def _make_mutable(path: Path) -> None:
    """efivarfs makes most variables immutable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.ioctl(file, _FS_IOC_SETFLAGS, struct.pack("l", 0))
    except OSError:
        pass
    finally:
        os.close(file)
