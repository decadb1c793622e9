"""The machine behind the stub: power, boot, media, accounts, sessions, tasks, firmware, and effects that come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from node_agent.redfish.clock import Clock

SYSTEM = "/redfish/v1/Systems/1"
MANAGER = "/redfish/v1/Managers/BMC"


@dataclass
class Options:
    """How this BMC differs from a well-behaved one."""

    sessions: bool = True
    etags: bool = True
    weak_etags_refused: bool = False
    session_location: bool = True
    sessions_link: bool = True
    media_of_system: bool = False
    media_actions: bool = True
    insert_error: dict[str, Any] | None = None  # 400 until `insert_needs` are sent
    insert_needs: tuple[str, ...] = ()
    settings_object: bool = False
    keeps_override: bool = False  # ignores "Once"
    loses_override: bool = False  # answers 200 and forgets it
    reset_types: tuple[str, ...] | None = ("On", "ForceOff", "GracefulShutdown", "ForceRestart")
    action_info: bool = False
    graceful_ignored: bool = False
    managed_by: bool = True
    tasks: bool = False  # 202 for slow commands
    partial_tasks: bool = False
    task_seconds: float = 5.0
    task_state: str = "Completed"
    lockout_after: int = 5
    storage_fails: bool = False
    restart_seconds: float = 5.0  # without answers after a reset of the BMC; infinite: it does not come back
    states_last_reset: bool = True
    restart_effect: Callable[[], None] | None = None  # what else a reset of the BMC does
    update_version: str = "2.00"
    update_applies: str = ""  # "host" or "bmc": the version is another one only after its reset
    update_restarts: bool = False  # an update restarts the BMC, which forgets its tasks
    update_effect: Callable[[str], None] | None = None  # what else an update from this image does
    console: Callable[[], dict[str, Any]] | None = None  # `SerialConsole` of the system
    manager_console: dict[str, Any] | None = None  # `SerialConsole` of the manager


@dataclass
class StubMachine:
    """One machine. `advance` carries out what is due; `effects` lists what happened, in order."""

    clock: Clock
    options: Options = field(default_factory=Options)
    power: str = "Off"
    override: dict[str, str] = field(default_factory=lambda: {"target": "None", "enabled": "Disabled"})
    image: str | None = None
    passwords: dict[str, str] = field(default_factory=lambda: {"berth": "first-secret"})
    refused_logins: int = 0
    sessions: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    firmware: str = "1.00"
    staged: str | None = None  # what a reset makes the version
    images: list[str] = field(default_factory=list)
    restarts: int = 0
    silent_until: float = 0.0
    boots: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    waiting: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    log: list[tuple[str, str, str]] = field(
        default_factory=lambda: [
            ("2026-01-01T00:00:00Z", "OK", "System powered on"),
            ("2026-01-02T00:00:00Z", "Critical", "DIMM 3 failed"),
        ]
    )

    def later(self, seconds: float, effect: Callable[[], None]) -> None:
        self.waiting.append((self.clock.now() + seconds, effect))

    def advance(self) -> None:
        """Carry out every effect that is due, oldest first."""
        while due := sorted((item for item in self.waiting if item[0] <= self.clock.now()), key=lambda item: item[0]):
            self.waiting.remove(due[0])
            due[0][1]()

    def changed(self, path: str) -> None:
        self.versions[path] = self.versions.get(path, 1) + 1

    def reset(self, kind: str) -> None:
        """What the machine does at a reset type."""
        self.effects.append(kind)
        if kind in ("On", "ForceOn") and self.power == "Off":
            self._start()
        elif kind == "ForceOff" or (kind == "GracefulShutdown" and not self.options.graceful_ignored):
            self.power = "Off"
        elif kind == "ForceRestart" and self.power == "On":
            self._start()

    def update(self, image: str) -> None:
        """An update from this image has ended."""
        self.effects.append("update")
        self.images.append(image)
        if self.options.update_applies:
            self.staged = self.options.update_version
        else:
            self.firmware = self.options.update_version
        if self.options.update_effect is not None:
            self.options.update_effect(image)
        if self.options.update_restarts:
            self.restart_bmc()
            self.tasks.clear()

    def _apply(self, by: str) -> None:
        if self.staged is not None and self.options.update_applies == by:
            self.firmware, self.staged = self.staged, None

    def _start(self) -> None:
        self._apply("host")
        self.power = "On"
        self.boots.append(self.override["target"])
        if self.override["enabled"] == "Once":
            self.override = {"target": "None", "enabled": "Disabled"}
        self.changed(SYSTEM)

    def set_override(self, target: str, enabled: str) -> None:
        if self.options.loses_override:
            return
        if self.options.keeps_override and enabled == "Once":
            enabled = "Continuous"
        self.override = {"target": target, "enabled": enabled}
        self.changed(SYSTEM)

    def set_image(self, image: str | None) -> None:
        self.effects.append("insert" if image else "eject")
        self.image = image
        self.changed("media")

    def set_password(self, name: str, password: str) -> None:
        self.effects.append("password")
        self.passwords[name] = password
        self.changed("accounts")
        self.sessions.clear()

    def end_session(self, token: str) -> None:
        self.sessions.pop(token, None)

    def login(self, name: str, password: str) -> bool:
        """Whether these credentials are right; an account is locked after too many refused logins."""
        if self.refused_logins >= self.options.lockout_after:
            return False
        if self.passwords.get(name) == password:
            return True
        self.refused_logins += 1
        return False

    def restart_bmc(self) -> None:
        self._apply("bmc")
        self.effects.append("bmc")
        self.restarts += 1
        self.sessions.clear()
        self.silent_until = self.clock.now() + self.options.restart_seconds
        if self.options.restart_effect is not None:
            self.options.restart_effect()
