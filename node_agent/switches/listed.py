"""The switches of a site as its agent is configured: a file of names, drivers and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, model_validator

from node_agent.switches.contract import Switch, SwitchUnknown
from node_agent.switches.linux_bridge import LinuxBridge
from node_agent.switches.noop import NoopSwitch
from node_agent.wire.fields import first_error
from node_agent.wire.switches import SwitchName

SWITCHES_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 1_048_576
_INTERFACE: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$"


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NoopOptions(_Options):
    """A switch that is not moved."""

    driver: Literal["noop"]


class LinuxBridgeOptions(_Options):
    """One bridge that filters VLANs, or the prefix of a bridge for each segment."""

    driver: Literal["linux_bridge"]
    bridge: Annotated[str, Field(pattern=_INTERFACE)] | None = None
    bridge_prefix: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z._-]{0,10}$")] | None = None
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = None

    @model_validator(mode="after")
    def _is_one_mode(self) -> LinuxBridgeOptions:
        if (self.bridge is None) is (self.bridge_prefix is None):
            raise ValueError("give either `bridge` or `bridge_prefix`")
        return self


_Listed = RootModel[
    Annotated[
        dict[SwitchName, Annotated[NoopOptions | LinuxBridgeOptions, Field(discriminator="driver")]],
        Field(max_length=SWITCHES_MAX),
    ]
]


def _bridge(options: Any) -> Switch:
    return LinuxBridge(options.bridge, options.bridge_prefix, options.namespace)


DRIVERS: Final[Mapping[str, Callable[[Any], Switch]]] = {
    NoopSwitch.driver: lambda _: NoopSwitch(),
    LinuxBridge.driver: _bridge,
}
"""A driver by its name. Each passes the conformance suite of tests/switches."""


def read_switches(path: Path) -> dict[str, Switch]:
    """The switches of this file by name. Raises OSError, ValueError with the field that is wrong."""
    with path.open("rb") as file:
        text = file.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise ValueError(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
    try:
        listed = _Listed.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_error(error, 'switches')}") from error
    return {name: DRIVERS[options.driver](options) for name, options in listed.root.items()}


def find_switch(switches: Mapping[str, Switch], name: str) -> Switch:
    """The switch of this name. Raises SwitchUnknown."""
    found = switches.get(name)
    if found is None:
        raise SwitchUnknown(f"this agent knows no switch {name} (BERTH_SITE_SWITCHES_FILE)")
    return found
