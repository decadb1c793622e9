"""The client's id across restarts: given by the caller, or stored in a file of the user.

The file is `berth/client-id` below `XDG_STATE_HOME`, else below `~/.local/state`. Where it cannot be kept the id is of this
process alone; keys stay unique, for the nonce in them is drawn anew at every start (`operation_keys`).
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

_KEPT = re.compile(r"[0-9a-f]{12}\n")


def kept_client_id() -> str:
    """The id in the user's file, made there at the first call. Never raises: without a file, a new one each time."""
    fresh = secrets.token_hex(6)
    try:
        return _kept_in(_state_directory() / "berth" / "client-id", fresh)
    except (OSError, RuntimeError, ValueError):
        return fresh


def _state_directory() -> Path:
    named = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path there is to be ignored.
    return Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"


def _kept_in(file: Path, fresh: str) -> str:
    """Read the id; the first process writes the file atomically, and damaged content is replaced."""
    if found := _read(file):
        return found
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}-{fresh}")
    try:
        written.write_text(f"{fresh}\n")
        with suppress(FileExistsError):
            os.link(written, file)
        if _read(file) is None:
            written.replace(file)
    finally:
        written.unlink(missing_ok=True)
    return _read(file) or fresh


def _read(file: Path) -> str | None:
    try:
        content = file.read_text("ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return content.strip() if _KEPT.fullmatch(content) else None
