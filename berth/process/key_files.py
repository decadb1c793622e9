"""Files of symmetric keys: base64 of 32 bytes per line. The first key encrypts, all decrypt, so that keys overlap."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

KEY_BYTES: Final = 32


def read_keys(path: Path, kind: str) -> list[bytes]:
    """The keys of a file, in order; `kind` names one in messages.

    Raises ValueError if a line is not base64 of 32 bytes or there is none, OSError. No message contains a key.
    """
    lines = [line.strip() for line in path.read_text().splitlines()]
    keys = [_read_key(path.name, number, line, kind) for number, line in enumerate(lines, 1) if line]
    if not keys:
        raise ValueError(f"{path.name} holds no {kind}")
    return keys


def _read_key(name: str, number: int, line: str, kind: str) -> bytes:
    try:
        key = base64.b64decode(line, validate=True)
    except ValueError as error:
        raise ValueError(f"line {number} of {name} is not base64") from error
    if len(key) != KEY_BYTES:
        raise ValueError(f"line {number} of {name} holds {len(key)} bytes; a {kind} has {KEY_BYTES}")
    return key
