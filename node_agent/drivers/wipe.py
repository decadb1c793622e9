"""Removing a directory, or what is in it, so that the absence is proven, whatever a tenant has put there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REMOVE_SECONDS_MAX = 300


@dataclass(frozen=True)
class Wiped:
    """What was removed: number of files and their bytes."""

    files: int
    bytes: int


def wipe(directory: Path) -> Wiped:
    """Remove `directory` and all in it without following links; a missing one is fine. Raises OSError if it is still
    there afterwards. What a tenant has made unreadable is made readable; what is nested too deeply for us is left to
    rm(1)."""
    counted = _count(directory)
    try:
        shutil.rmtree(directory, onerror=_retry_writable)
    except FileNotFoundError:
        pass
    except (OSError, RecursionError):
        subprocess.run(["rm", "-rf", "--", str(directory)], check=False, timeout=REMOVE_SECONDS_MAX)
    if os.path.lexists(directory):
        raise OSError(f"{directory.name} is still there after it was removed")
    return counted


def wipe_content(directory: Path, keep: Path | None = None) -> Wiped:
    """Remove all that is in `directory` but `keep`, as `wipe` does, and keep it with its mode; a missing one is fine."""
    counted = _count(directory)
    try:
        mode = stat.S_IMODE(directory.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            directory.chmod(mode | stat.S_IRWXU)
        entries = [entry for entry in directory.iterdir() if entry != keep]
    except FileNotFoundError:
        return counted
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            wipe(entry)
        else:
            entry.unlink(missing_ok=True)
    if any(entry != keep for entry in directory.iterdir()):
        raise OSError(f"{directory.name} is not empty after its content was removed")
    return counted


def _count(directory: Path) -> Wiped:
    files = total = 0
    pending = [str(directory)]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue  # unreadable or gone: counted as nothing, removed all the same
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                files += 1
                total += entry.stat(follow_symlinks=False).st_size
    return Wiped(files, total)


def _retry_writable(again: Callable[..., Any], path: str, problem: tuple[Any, BaseException, Any]) -> None:
    if isinstance(problem[1], FileNotFoundError) or again not in (os.scandir, os.open, os.unlink, os.rmdir, os.lstat):
        raise problem[1]
    for place in (os.path.dirname(path), path):  # noqa: PTH120 - paths as rmtree gives them
        if stat.S_ISDIR(os.lstat(place).st_mode):
            os.chmod(place, stat.S_IRWXU)  # noqa: PTH101
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)  # noqa: PTH108
