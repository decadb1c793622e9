"""A burn-in of a node: what `diag.burn_in` is given and what it returns.

A part that could not be tested is `unknown`, and `evidence` says why; `gaps` name what was left out. Which report is a pass
decides the control plane.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from node_agent.wire.fields import Seconds, Truth, Whole, Wire
from node_agent.wire.health import PLUGINS_MAX, Evidence, Named, PluginResult, Verdict, named_once
from node_agent.wire.topology import GAPS_MAX, GPUS_MAX, Gap, Index, Name, PciAddress

BURN_IN_FEATURE: Final = "burn_in"
"""What an agent that knows the task names in its heartbeats."""
PARTS_MAX: Final = 4
SLOTS_MAX: Final = 64

PartName = Literal["memory", "disk", "cpu", "dcgm"]


class BurnInParameters(Wire):
    """What `diag.burn_in` needs: the slots under test, their GPUs if known, and whether other slots of the node are occupied."""

    slots: Annotated[
        list[Annotated[int, Field(strict=True, ge=0, lt=SLOTS_MAX)]], Field(min_length=1, max_length=SLOTS_MAX)
    ]
    gpus: Annotated[list[PciAddress], Field(max_length=GPUS_MAX)]
    shared: Truth


class BurnInPart(Named):
    """One part. `bytes_tested` of memory and disk, `cores_tested` of processors."""

    name: PartName
    verdict: Verdict
    evidence: Evidence = ""
    bytes_tested: Whole | None = None
    cores_tested: Index | None = None
    seconds: Seconds = 0.0


class BurnInReport(Wire):
    """The whole burn-in. `shared`: with the smaller bounds, because allocations were on the node."""

    driver: Name
    shared: Truth
    parts: Annotated[list[BurnInPart], Field(max_length=PARTS_MAX), AfterValidator(named_once)]
    plugins: Annotated[list[PluginResult], Field(max_length=PLUGINS_MAX), AfterValidator(named_once)] | None = None
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        content = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
