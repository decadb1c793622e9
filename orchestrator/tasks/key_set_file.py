"""The key set that this process carries to agents, read again when its file changes: no restart, no signature of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from berth.process.json_objects import JsonObject
from node_agent.key_set import KeySetRefused, read_envelope, read_unverified
from node_agent.protocol import VerifyingKey

log = structlog.get_logger("orchestrator.key_set")
ReadAt = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class CarriedKeySet:
    """A key set as agents get it. `verifying_keys` and `ca_pem` are for agents of the version before, which read no key set."""

    serial: int
    envelope: JsonObject
    verifying_keys: list[VerifyingKey]
    ca_pem: str


class KeySetFile:
    """The key set of a file. A file that cannot be read leaves the last set in use; `observe` gets each serial that is read.

    Raises OSError or ValueError if it cannot be read at the beginning.
    """

    def __init__(self, path: Path, observe: Callable[[int], object] = lambda serial: None) -> None:
        self._path = path
        self._observe = observe
        self._seen = self._state()
        self._carried = self._read()

    def current(self) -> CarriedKeySet:
        """The set of the file as it is now."""
        try:
            state = self._state()
            if state != self._seen:
                self._carried = self._read()
                self._seen = state
                log.info("key_set_reloaded", file=str(self._path), serial=self._carried.serial)
        except (OSError, ValueError) as error:  # half written or removed: the next call tries again
            log.warning("key_set_not_reloaded", file=str(self._path), why=str(error))
        return self._carried

    def _state(self) -> ReadAt:
        found = self._path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> CarriedKeySet:
        carried = _read(self._path)
        self._observe(carried.serial)
        return carried


def _read(path: Path) -> CarriedKeySet:
    try:
        envelope = read_envelope(path.read_bytes())
        content = read_unverified(envelope)
    except KeySetRefused as refused:
        raise ValueError(f"{path.name} is no key set ({refused}); make it with deploy/sign-key-set") from refused
    keys = [VerifyingKey(key_id=key.key_id, public_key=key.public_key) for key in content.task_keys]
    return CarriedKeySet(content.serial, envelope.model_dump(), keys, "".join(content.node_cas))
