"""The virtual devices of a guest: a member of the evidence of provisions and verbs.

`evidence["guest_devices"]` is a `GuestDevices`. Agents of the version before send none.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from berth.process.json_objects import JsonMapping, JsonObject
from node_agent.wire.fields import Wire
from node_agent.wire.topology import REASON_MAX, Text

EVIDENCE: Final = "guest_devices"
"""The name of the member."""
DEVICES_MAX: Final = 64


class GuestDevice(Wire):
    """One virtual device. `name` is its row in docs/reference/fleet/guest-devices.md."""

    name: Text
    model: Text | None = None
    address: Text | None = None


def _named_once(devices: list[GuestDevice]) -> list[GuestDevice]:
    if len({device.name for device in devices}) != len(devices):
        raise ValueError("names one device twice")
    return devices


class GuestDevices(Wire):
    """The devices that a running guest has. Without any, `reason` says why: `devices` absent is unknown, empty is none."""

    devices: Annotated[list[GuestDevice], Field(max_length=DEVICES_MAX), AfterValidator(_named_once)] | None = None
    reason: Annotated[str, Field(min_length=1, max_length=REASON_MAX, pattern=r"^[\x20-\x7e]*$")] | None = None

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if bool(self.devices) is (self.reason is not None):
            raise ValueError("has either devices or a reason why there are none")
        return self

    def evidence(self) -> JsonObject:
        """The member of a result's evidence."""
        return {EVIDENCE: self.model_dump(mode="json", exclude_none=True)}


def unknown(reason: str) -> GuestDevices:
    """No devices could be read, for this reason."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in reason)
    return GuestDevices(reason=shown[:REASON_MAX] or "no reason was given")


def devices_in(evidence: JsonMapping) -> GuestDevices | None:
    """What the evidence says of devices; None if it says nothing. Raises pydantic.ValidationError."""
    return None if EVIDENCE not in evidence else GuestDevices.model_validate(evidence[EVIDENCE])
