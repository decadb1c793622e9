"""The host's ports that lead to the SSH servers of guests."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection


def free_port(host: str, first: int, last: int, taken: Collection[int | None]) -> int:
    """A port of `host`, from `first` to `last`, that is not `taken` and on which nothing listens. Raises OSError if none is."""
    candidates = [port for port in range(first, last + 1) if port not in taken]
    random.shuffle(candidates)
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        return port
    raise OSError(f"no port from {first} to {last} is free")
