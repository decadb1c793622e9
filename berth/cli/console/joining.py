"""Joins standard input and output with the socket of a console, until one side ends."""

from __future__ import annotations

import json
import os
import select
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from berth.cli.console.terminal_mode import note, until_escape
from berth.cli.terminal import visible
from berth.process.json_objects import JsonObject

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

READ_BYTES = 1_024
"""As much as one message may have."""
SILENCE_SECONDS = 1.0
"""After the end of standard input that is no terminal: silence of the guest that ends the session."""


@dataclass
class Ending:
    """Why the session ended: the server's reason, `left` (by the escape key), `input_ended`, or `connection_lost`."""

    reason: str = "connection_lost"
    detail: str = "the connection was lost"
    bytes_out: int = field(default=0)


class Joined:
    """One session. `interactive`: standard input is a terminal, and the escape key ends the session."""

    def __init__(self, socket: ClientConnection, read_from: int, write_to: int, *, interactive: bool) -> None:
        self._socket = socket
        self._read_from = read_from
        self._write_to = write_to
        self._interactive = interactive
        self._ending = Ending()
        self._begun = threading.Event()
        self._output = threading.Event()
        self._wake_read, self._wake_write = os.pipe()

    def run(self) -> Ending:
        """Until one side ends the session."""
        receiving = threading.Thread(target=self._receive, daemon=True)
        receiving.start()
        try:
            self._send()
        finally:
            self._socket.close()
            receiving.join(5.0)
            os.close(self._wake_read)
            os.close(self._wake_write)
        return self._ending

    def _send(self) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                ready, _, _ = select.select([self._read_from, self._wake_read], [], [])
                if self._wake_read in ready:
                    return
                data = os.read(self._read_from, READ_BYTES)
                if not data:
                    self._end_of_input()
                    return
                data, left = until_escape(data) if self._interactive else (data, False)
                if data:
                    self._socket.send(data)
                if left:
                    self._ending = Ending("left", "left by Ctrl-]", self._ending.bytes_out)
                    return
        except ConnectionClosed:
            return

    def _end_of_input(self) -> None:
        """Return when the guest has been silent for a while, or the session has ended."""
        while True:
            self._output.clear()
            timeout = SILENCE_SECONDS if self._begun.is_set() else None
            ready, _, _ = select.select([self._wake_read], [], [], timeout if timeout is not None else 0.1)
            if ready:
                return
            if timeout is not None and not self._output.is_set():
                self._ending = Ending("input_ended", "standard input ended", self._ending.bytes_out)
                return

    def _receive(self) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                message = self._socket.recv()
                if isinstance(message, bytes):
                    self._output.set()
                    self._ending.bytes_out += len(message)
                    while message:
                        message = message[os.write(self._write_to, message) :]
                else:
                    self._take(json.loads(message))
        except (ConnectionClosed, OSError):
            pass
        finally:
            os.write(self._wake_write, b".")

    def _take(self, said: JsonObject) -> None:
        kind = said.get("type")
        if kind == "begin":
            self._begun.set()
            leave = "; Ctrl-] leaves" if self._interactive else ""
            note(f"attached until {visible(str(said.get('ends_at')))}{leave}")
        elif kind == "dropped":
            note(f"{said.get('bytes')} bytes of output are missing here: this side read too slowly")
        elif kind == "ended":
            self._ending = Ending(
                visible(str(said.get("reason"))), visible(str(said.get("detail"))), self._ending.bytes_out
            )
