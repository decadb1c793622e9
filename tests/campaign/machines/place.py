"""The files of each machine of the rack, by which BMC, system, faults and checks agree, whichever was killed.

`seen.jsonl` is the evidence: a line for each thing that happened, with the time of the monotonic clock, which all processes of a
host share. A line is one write, so that a killed process leaves no half of one before another.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.local.state import write_whole

MACHINE_PREFIX = "machine-"
SERIAL = "S1"
SIZE_BYTES = 2 << 30
USER = "berth"
FIRST_PASSWORD = "first-secret"
CERTIFICATES = (1, 2)
"""A BMC has the first, and the second one while a fault has changed it."""


@dataclass(frozen=True)
class Place:
    """One machine: its directory, its number from 1, and the port at which its BMC listens."""

    directory: Path
    number: int
    port: int

    @property
    def name(self) -> str:
        """The name of its node."""
        return f"{MACHINE_PREFIX}{self.number}"

    @property
    def url(self) -> str:
        """Of its BMC."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Where its system is reached: on loopback, another one for each machine."""
        return f"127.0.1.{self.number}"

    @property
    def mac(self) -> str:
        """Of its only port."""
        return f"02:00:00:00:{self.number:02x}:01"

    @property
    def smbios(self) -> uuid.UUID:
        """As its firmware has it."""
        return uuid.uuid5(uuid.NAMESPACE_OID, self.name)

    @property
    def network(self) -> dict[str, str]:
        """As an inspection takes it."""
        return {"mac": self.mac, "address": f"{self.address}/8"}

    def certificate(self, number: int) -> Path:
        """A certificate of its BMC with its key; the digest is in the file beside it."""
        return self.directory / f"certificate-{number}.pem"

    def pin(self, number: int) -> str:
        """The SHA-256 of that certificate."""
        return self.certificate(number).with_suffix(".sha256").read_text()

    def write(self, what: str, content: dict[str, Any]) -> None:
        """Replace a document as a whole."""
        write_whole(self.directory / f"{what}.json", json.dumps(content))

    def read(self, what: str) -> dict[str, Any]:
        """The document; empty if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.directory / f"{what}.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def remove(self, what: str) -> None:
        """Remove the document, if there is one."""
        with suppress(FileNotFoundError):
            (self.directory / f"{what}.json").unlink()

    def note(self, what: str, **details: Any) -> None:
        """Append evidence."""
        line = json.dumps({"at": time.monotonic(), "what": what, **details}) + "\n"
        file = os.open(self.directory / "seen.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def seen(self) -> list[dict[str, Any]]:
        """The evidence so far, in the order in which it was written."""
        file = self.directory / "seen.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def places_of(directory: Path) -> list[Place]:
    """The machines of a rack's directory, as `rack.json` plans them."""
    planned = json.loads((directory / "rack.json").read_bytes())
    return [Place(directory / f"{MACHINE_PREFIX}{n}", n, port) for n, port in enumerate(planned["ports"], 1)]
