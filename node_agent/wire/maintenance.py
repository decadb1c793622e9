"""Plugins of maintenance windows: what `maintenance.plugin` is given and what it returns."""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import Field

from node_agent.wire.burn_in import SLOTS_MAX
from node_agent.wire.fields import Truth, Wire
from node_agent.wire.health import Evidence

MAINTENANCE_PLUGIN_FEATURE: Final = "maintenance_plugin"
"""What an agent with a folder of maintenance plugins names in its heartbeats."""
PLUGIN_NAME: Final = r"^[a-z0-9][a-z0-9._-]{0,31}$"

PluginName = Annotated[str, Field(pattern=PLUGIN_NAME)]
PluginOutcome = Literal["completed", "failed", "plugin_unknown", "plugin_unsafe", "node_in_use"]
NEVER_BEGUN: Final = frozenset({"plugin_unknown", "plugin_unsafe", "node_in_use"})
"""Outcomes without an effect on the node: the plugin was not executed."""


class MaintenancePluginParameters(Wire):
    """What `maintenance.plugin` needs: the file name of the plugin, and the slots of the node, which are all held."""

    plugin: PluginName
    slots: Annotated[
        list[Annotated[int, Field(strict=True, ge=0, lt=SLOTS_MAX)]], Field(min_length=1, max_length=SLOTS_MAX)
    ]


class MaintenancePluginReport(Wire):
    """What became of the plugin. `rebooted`: it had declared a reboot, and the node has another boot id than before."""

    plugin: PluginName
    outcome: PluginOutcome
    evidence: Evidence = ""
    rebooted: Truth = False

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, no white space."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()
