"""Processes and files as the kernel shows them, for probes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID


def processes_of_allocations(allocations: Path) -> dict[UUID, set[int]]:
    """Processes whose arguments or environment name a directory of `allocations`, or which have something in one open."""
    found: dict[UUID, set[int]] = defaultdict(set)
    inside = re.compile(re.escape(str(allocations)) + r"/([0-9a-f-]{36})(/|$| )")
    for pid in living():
        for allocation in {*_by_what_it_shows(pid, allocations), *_by_open_files(pid, inside)}:
            found[allocation].add(pid)
    return dict(found)


def living() -> Iterator[int]:
    """Every process but zombies and this one."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                stat = Path(entry.path, "stat").read_bytes()
                if stat[stat.rindex(b")") + 2 :].split()[0] not in (b"Z", b"X"):
                    yield int(entry.name)


def _by_what_it_shows(pid: int, allocations: Path) -> Iterator[UUID]:
    named = re.compile(re.escape(os.fsencode(allocations)) + rb"/([0-9a-f-]{36})")
    for shown in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            for match in named.finditer(Path(f"/proc/{pid}/{shown}").read_bytes()):
                yield UUID(match[1].decode())


def _by_open_files(pid: int, inside: re.Pattern[str]) -> Iterator[UUID]:
    with contextlib.suppress(OSError):
        for link in (f"/proc/{pid}/cwd", *(entry.path for entry in os.scandir(f"/proc/{pid}/fd"))):
            with contextlib.suppress(OSError):
                if (match := inside.match(os.readlink(link))) is not None:  # noqa: PTH115 - may end in " (deleted)"
                    yield UUID(match[1])


def content(directory: Path) -> dict[str, str]:
    """Every path below `directory` with what it is: a hash for a file, the target for a link."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_dir():
            found[name] = "directory"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "special"
    return found


def traces_of(marker: str, directory: Path) -> list[str]:
    """Files below `directory` that contain `marker` or are named after it, and processes that show it."""
    sought = marker.encode()
    found = [
        str(path)
        for path in directory.rglob("*")
        if marker in path.name or (path.is_file() and not path.is_symlink() and sought in path.read_bytes())
    ]
    for pid in living():
        for shown in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if sought in Path(f"/proc/{pid}/{shown}").read_bytes():
                    found.append(f"{shown} of process {pid}")
    return found
