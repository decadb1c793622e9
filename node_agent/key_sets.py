"""The key set that this agent uses: the newest one that a pinned root has signed, kept on disk.

`identity/key-set.json` holds the set, `identity/key-set-serial` its serial: if the first is damaged, no older set comes
back. Both survive a new enrolment.
"""

from __future__ import annotations

import json
from pathlib import Path

import structlog

from berth.process.json_objects import JsonObject
from node_agent.clock import boot_seconds
from node_agent.durable_files import make_private_directory, write_durably
from node_agent.key_set import (
    KeySet,
    KeySetEnvelope,
    KeySetRefused,
    Refusal,
    open_key_set,
    read_envelope,
    read_public_keys,
    root_keys,
)
from node_agent.metrics import AgentMetrics
from node_agent.problems import CannotStart

log = structlog.get_logger("node_agent.key_sets")

REFUSED_QUIET_SECONDS = 60.0
"""How long an agent does not fetch a set again after it refused one."""


class KeySets:
    """The newest accepted key set of one agent. `refusal`: why the last offered set was refused; None after an accepted one."""

    def __init__(self, state_dir: Path, root_keys_file: Path, metrics: AgentMetrics) -> None:
        """Read the pinned roots and the stored set. Raises CannotStart, OSError."""
        directory = state_dir / "identity"
        make_private_directory(directory)
        self._set_file = directory / "key-set.json"
        self._serial_file = directory / "key-set-serial"
        self._metrics = metrics
        try:
            self._roots = root_keys(read_public_keys(root_keys_file))
        except (ValueError, OSError) as error:
            raise CannotStart(f"the root keys of BERTH_ROOT_KEYS_FILE cannot be read: {error}") from error
        self.refusal: Refusal | None = None
        self._refused_at = -REFUSED_QUIET_SECONDS
        self._payload: str | None = None
        self.current: KeySet | None = self._load()
        self._least_serial = self._read_least_serial()
        self._show()

    @property
    def serial(self) -> int | None:
        """The serial of the set in use; None before the first."""
        return None if self.current is None else self.current.serial

    def is_wanted(self, serial: int | None) -> bool:
        """Whether a set of this serial, as the server announces it, is to be fetched now."""
        if serial is None or serial < self._least_serial:
            return False
        if self.refusal is not None:  # an unchanged set ends the report of the refusal
            return boot_seconds() - self._refused_at >= REFUSED_QUIET_SECONDS
        return serial != self.serial

    def offer(self, content: bytes | JsonObject | None) -> bool:
        """Use the offered set from now on if it is newer; return whether it is. Raises KeySetRefused, OSError.

        A refused set is logged, counted and reported with the next heartbeat; the set in use stays.
        """
        try:
            envelope = read_envelope(_as_bytes(content))
            offered = open_key_set(envelope, self._roots)
            self._require_newer(offered, envelope)
        except KeySetRefused as refused:
            self.refusal = refused.reason
            self._refused_at = boot_seconds()
            self._metrics.key_sets_refused.labels(refused.reason).inc()
            log.error("key_set_refused", why=str(refused), serial_in_use=self.serial)
            raise
        self.refusal = None
        if self._payload == envelope.payload:
            return False
        # The serial first: a crash between the two leaves the older set, and no way back to one that is older still.
        write_durably(self._serial_file, f"{offered.serial}\n".encode())
        self._least_serial = offered.serial
        write_durably(self._set_file, envelope.model_dump_json().encode())
        self.current, self._payload = offered, envelope.payload
        self._show()
        log.info("key_set_accepted", serial=offered.serial, task_keys=[key.key_id for key in offered.task_keys])
        return True

    def _require_newer(self, offered: KeySet, envelope: KeySetEnvelope) -> None:
        if offered.serial < self._least_serial:
            raise KeySetRefused("older_serial", f"{offered.serial}; this agent has seen {self._least_serial}")
        if self.current is not None and offered.serial == self.current.serial and envelope.payload != self._payload:
            raise KeySetRefused("serial_reused", f"{offered.serial} has another content than the set in use")

    def _load(self) -> KeySet | None:
        if not self._set_file.exists():
            return None
        try:
            envelope = read_envelope(self._set_file.read_bytes())
            stored = open_key_set(envelope, self._roots)
        except KeySetRefused as refused:
            aside = self._set_file.with_suffix(".refused")
            self._set_file.replace(aside)
            log.error("stored_key_set_refused", put_aside=aside.name, why=str(refused))
            return None
        self._payload = envelope.payload
        return stored

    def _read_least_serial(self) -> int:
        in_use = 0 if self.current is None else self.current.serial
        if not self._serial_file.exists():
            return in_use
        try:
            return max(int(self._serial_file.read_text()), in_use)
        except ValueError as error:
            if self.current is not None:
                return in_use
            raise CannotStart(
                f"{self._serial_file} is damaged and no stored key set is valid; write the serial of the newest key set into it"
            ) from error

    def _show(self) -> None:
        self._metrics.key_set_serial.set(self.serial or 0)


def _as_bytes(content: bytes | JsonObject | None) -> bytes:
    if content is None:
        raise KeySetRefused("missing", "the response holds no key set")
    return content if isinstance(content, bytes) else json.dumps(content).encode()
