"""The serial console of a guest, through libvirtd: a stream, joined with a socket that the agent reads and writes.

libvirtd opens the pseudo-terminal, so the agent needs no right to it; it gives the console to one client at a time. QEMU writes
the log itself, whether or not a client is connected.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import libvirt

PIECE_BYTES = 16 * 1024
END_SECONDS_MAX = 5.0


class SerialConsole:
    """An open console with a separate connection to libvirtd. Its calls block. At the guest's end `descriptor` reads as ended."""

    def __init__(self, connection: Any, domain: Any) -> None:
        """Open it. Raises libvirt.libvirtError; the caller then closes the connection."""
        self._connection = connection
        self._stream = connection.newStream(0)
        # Without FORCE: a person at `virsh console` is not thrown out.
        domain.openConsole(None, self._stream, 0)
        self._ours, self._theirs = socket.socketpair()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._write)]
        for thread in self._threads:
            thread.start()

    @property
    def descriptor(self) -> int:
        """What the agent reads and writes."""
        return self._theirs.fileno()

    def close(self) -> None:
        """Let go of the console, and end both threads."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        with suppress(libvirt.libvirtError):
            self._stream.abort()
        for thread in self._threads:
            thread.join(END_SECONDS_MAX)
        with suppress(libvirt.libvirtError):
            self._connection.close()
        self._ours.close()
        self._theirs.close()

    def _read(self) -> None:
        with suppress(libvirt.libvirtError, OSError):
            while data := self._stream.recv(PIECE_BYTES):
                self._ours.sendall(data)
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        with suppress(libvirt.libvirtError, OSError):
            while data := self._ours.recv(PIECE_BYTES):
                while data:
                    data = data[self._stream.send(data) :]
