"""A small file with a placeholder, as the medium has one."""

from __future__ import annotations

import os
from pathlib import Path

from node_agent.media.placeholder import CONFIGURATION_BYTES, PLACEHOLDER

AT = 64 * 2048
SIZE_BYTES = 3 * 2**20 + 2048


def common_medium(path: Path, size_bytes: int = SIZE_BYTES) -> bytes:
    """Write the file; its bytes."""
    content = os.urandom(AT) + PLACEHOLDER + os.urandom(size_bytes - AT - CONFIGURATION_BYTES)
    path.write_bytes(content)
    return content


def configuration(word: str = "one") -> bytes:
    """A machine's configuration, padded."""
    return f'{{"for":"{word}"}}'.encode().ljust(CONFIGURATION_BYTES)


def own(content: bytes, word: str = "one") -> bytes:
    """What a machine must read."""
    return content[:AT] + configuration(word) + content[AT + CONFIGURATION_BYTES :]
