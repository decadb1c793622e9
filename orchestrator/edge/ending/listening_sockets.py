"""Closes a listening socket without a reset for any client: the kernel resets every connection that it has not handed out.

A connection counts as open for its client once the kernel has answered its first packet, before `accept` returns it. So first new
ones are no longer answered (a packet filter on the socket, which needs no privilege), then those under way are accepted, and
then the socket is closed. A client whose first packet was dropped sends it again a second later, and is refused then.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from typing import Final

SO_ATTACH_FILTER: Final = 26
FLAGS_OFFSET: Final = 13
"""Of the flags in a TCP header."""
SYN: Final = 0x02
SYN_AND_ACK: Final = 0x12
_DROP_NEW: Final = (
    (0x30, 0, 0, FLAGS_OFFSET),  # load the byte of the flags
    (0x54, 0, 0, SYN_AND_ACK),  # these two count
    (0x15, 0, 1, SYN),  # if it is the first packet of a connection
    (0x06, 0, 0, 0),  # drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # else take it
)
"""Classic BPF: code, jump if true, jump if false, operand."""


def drop_new(listening: socket.socket) -> None:
    """From now on the kernel answers no new connection. Does nothing where packet filters are not allowed."""
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in _DROP_NEW))
    program = struct.pack("HL", len(_DROP_NEW), ctypes.addressof(instructions))
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
