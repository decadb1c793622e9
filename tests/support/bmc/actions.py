"""Actions of the stub: each checks its parameters and returns its name and its effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.bmc.machine import StubMachine

Acted = tuple[str, Callable[[], None]]


class Refused(Exception):
    """An error reply without an effect."""

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None, body: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers, self.body = status, message, headers, body


def reset(machine: StubMachine, _: str, body: dict[str, Any]) -> Acted:
    kind = body.get("ResetType")
    if machine.options.reset_types is not None and kind not in machine.options.reset_types:
        raise Refused(400, "ActionParameterNotSupported")
    return "reset", lambda: machine.reset(str(kind))


def insert(machine: StubMachine, path: str, body: dict[str, Any]) -> Acted:
    if machine.options.insert_error is not None and not all(name in body for name in machine.options.insert_needs):
        raise Refused(400, "ActionParameterMissing", body=machine.options.insert_error)
    if not machine.options.media_actions or "/CD1/" not in path:
        raise Refused(404, "ResourceMissingAtURI")
    if machine.image is not None:
        raise Refused(409, "ResourceInUse")
    return "insert", lambda: machine.set_image(str(body["Image"]))


def eject(machine: StubMachine, path: str, body: dict[str, Any]) -> Acted:
    if not machine.options.media_actions or "/CD1/" not in path:
        raise Refused(404, "ResourceMissingAtURI")
    return "eject", lambda: machine.set_image(None)


def update(machine: StubMachine, _: str, body: dict[str, Any]) -> Acted:
    if not body.get("ImageURI"):
        raise Refused(400, "ActionParameterMissing")

    return "update", lambda: machine.update(str(body["ImageURI"]))


def restart_bmc(machine: StubMachine, _: str, body: dict[str, Any]) -> Acted:
    if body.get("ResetType") not in ("ForceRestart", "GracefulRestart"):
        raise Refused(400, "ActionParameterNotSupported")
    return "bmc", machine.restart_bmc


ACTIONS: dict[str, Callable[[StubMachine, str, dict[str, Any]], Acted]] = {
    "ComputerSystem.Reset": reset,
    "VirtualMedia.InsertMedia": insert,
    "VirtualMedia.EjectMedia": eject,
    "UpdateService.SimpleUpdate": update,
    "Manager.Reset": restart_bmc,
}
